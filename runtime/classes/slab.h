/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Slab caches of drivers, and their constructors. */
#ifndef GUARDRAIL_CLASSES_SLAB_H
#define GUARDRAIL_CLASSES_SLAB_H

#include "base/kernel.h"

/**
 * guardrail_construct() - Put an object that is to be freed into the state of its cache's free
 *   objects.
 * @domain: Domain whose cache it may be from.
 * @start: Begin of the object.
 * @size: Its size in bytes. All caches of the domain with objects of this size count.
 *
 * Context: Any but NMI.
 * Return: False where its constructor was unloaded; then it must not be freed.
 */
bool guardrail_construct(u32 domain, unsigned long start, unsigned long size);

#endif /* GUARDRAIL_CLASSES_SLAB_H */
