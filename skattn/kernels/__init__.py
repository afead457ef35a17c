"""Kernels: what weight a scaled distance earns."""

from skattn.kernels._kernels import KERNELS, CallableKernel, Kernel, get_kernel

__all__ = ["KERNELS", "CallableKernel", "Kernel", "get_kernel"]
