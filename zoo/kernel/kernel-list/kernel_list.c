// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Adds a request to the queue that is in it already, as a retry does that does not know of the first try. The
 * kernel checks links when entries are added, and stops the thread.
 *
 * Twin: takes the request out of the queue before the retry adds it.
 */
#include "zoo.h"

static LIST_HEAD(queue);
static struct list_head request;
static struct zoo_thread worker;

static noinline void kernel_list_submit(void)
{
	list_add(&request, &queue); /* BUG: list-corruption */
}

static void kernel_list_run(void)
{
	kernel_list_submit();
#ifdef TWIN
	list_del(&request);
#endif
	kernel_list_submit();
}

static int __init kernel_list_init(void)
{
	return zoo_thread_start(&worker, kernel_list_run);
}

static void __exit kernel_list_exit(void)
{
	zoo_thread_stop(&worker);
}

module_init(kernel_list_init);
module_exit(kernel_list_exit);
MODULE_DESCRIPTION("zoo: adds an entry to a list twice");
