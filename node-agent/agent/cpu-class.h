/* SPDX-License-Identifier: Apache-2.0
 *
 * What CPU this host has, as placement knows it: a snapshot goes on only where CPUID says the same, and sandboxes may ask
 * for one (croft sandbox create --cpu-class). Vendor, family and model, each as /proc/cpuinfo has them: `amd-25-1`.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CPU_CLASS_SIZE 64 /* ID_NAME_MAX and its NUL */

/* `vendor`: the twelve characters of CPUID leaf 0; `signature`: EAX of leaf 1. */
void cpu_class_name(const char vendor[static 12], uint32_t signature, char ret[static CPU_CLASS_SIZE]);
/* "" where CPUID says nothing. */
void cpu_class_of_host(char ret[static CPU_CLASS_SIZE]);
