// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Templates that replace those of drivers, and functions of scsi_mod that are not exported;
 * scsi_parked.h describes them.
 */
#include <linux/slab.h>

#include "base/symbols.h"
#include "classes/scsi_parked.h"

/* scsi_mod may be loaded after this module, and nothing else needs it. */
void guardrail_t_proc_dir(const struct scsi_host_template *template);
void guardrail_t_proc_host(struct Scsi_Host *host);
DEFINE_STATIC_CALL_NULL(guardrail_scsi_block, scsi_host_block);
DEFINE_STATIC_CALL_NULL(guardrail_scsi_unblock, scsi_host_unblock);
DEFINE_STATIC_CALL_NULL(guardrail_scsi_done, scsi_done);
DEFINE_STATIC_CALL_NULL(guardrail_scsi_unmap, scsi_dma_unmap);
DEFINE_STATIC_CALL_NULL(guardrail_scsi_next, __scsi_iterate_devices);
DEFINE_STATIC_CALL_NULL(guardrail_scsi_remove, scsi_remove_host);
DEFINE_STATIC_CALL_NULL(guardrail_proc_dir_come, guardrail_t_proc_dir);
DEFINE_STATIC_CALL_NULL(guardrail_proc_dir_go, guardrail_t_proc_dir);
DEFINE_STATIC_CALL_NULL(guardrail_proc_host_come, guardrail_t_proc_host);
DEFINE_STATIC_CALL_NULL(guardrail_proc_host_go, guardrail_t_proc_host);

/* All stand-ins, under guardrail_parked_lock. */
static LIST_HEAD(stand_ins);
struct spi_function_template guardrail_no_functions;

#define FIND(call, type, name)                                       \
	({                                                           \
		unsigned long addr = guardrail_find_symbol(name);    \
		if (addr)                                            \
			static_call_update(call, (typeof(&type))addr); \
		addr;                                                \
	})

bool guardrail_scsi_find(void)
{
	bool found = FIND(guardrail_scsi_block, scsi_host_block, "scsi_host_block") &&
		     FIND(guardrail_scsi_unblock, scsi_host_unblock, "scsi_host_unblock") &&
		     FIND(guardrail_scsi_done, scsi_done, "scsi_done") &&
		     FIND(guardrail_scsi_unmap, scsi_dma_unmap, "scsi_dma_unmap") &&
		     FIND(guardrail_scsi_next, __scsi_iterate_devices, "__scsi_iterate_devices") &&
		     FIND(guardrail_scsi_remove, scsi_remove_host, "scsi_remove_host");

#ifdef CONFIG_SCSI_PROC_FS
	found = found && FIND(guardrail_proc_dir_come, guardrail_t_proc_dir, "scsi_proc_hostdir_add") &&
		FIND(guardrail_proc_dir_go, guardrail_t_proc_dir, "scsi_proc_hostdir_rm") &&
		FIND(guardrail_proc_host_come, guardrail_t_proc_host, "scsi_proc_host_add") &&
		FIND(guardrail_proc_host_go, guardrail_t_proc_host, "scsi_proc_host_rm");
#endif
	return found;
}

void guardrail_scsi_remove_file(struct Scsi_Host *host)
{
	if (!IS_ENABLED(CONFIG_SCSI_PROC_FS) || !host->hostt->show_info)
		return;
	static_call(guardrail_proc_host_go)(host);
	static_call(guardrail_proc_dir_go)(host->hostt);
}

void guardrail_scsi_make_file(struct Scsi_Host *host)
{
	if (!IS_ENABLED(CONFIG_SCSI_PROC_FS) || !host->hostt->show_info)
		return;
	static_call(guardrail_proc_dir_come)(host->hostt);
	static_call(guardrail_proc_host_come)(host);
}

/*
 * Functions of a driver that is not loaded. The kernel's error handler tries commands for some time
 * after a reset that succeeded.
 */
static typeof(((struct scsi_host_template *)NULL)->queuecommand(NULL, NULL)) busy(struct Scsi_Host *host, struct scsi_cmnd *cmd)
{
	return SCSI_MLQUEUE_HOST_BUSY;
}

typeof(busy(NULL, NULL)) guardrail_scsi_gone(struct Scsi_Host *host, struct scsi_cmnd *cmd)
{
	cmd->result = DID_NO_CONNECT << 16;
	static_call(guardrail_scsi_done)(cmd);
	return 0;
}

static int was_reset(struct scsi_cmnd *cmd)
{
	return SUCCESS;
}

/* What the kernel reads in a template stays as the driver has it. */
static void fill_template(struct guardrail_stand_in *found, const struct scsi_host_template *driver)
{
	struct scsi_host_template *template = &found->template;

	found->driver = driver;
	strscpy(found->name, driver->name ?: "", sizeof(found->name));
	strscpy(found->proc_name, driver->proc_name ?: "", sizeof(found->proc_name));
	*template = (struct scsi_host_template){
		.module = &found->module, .name = found->name, .proc_name = driver->proc_name ? found->proc_name : NULL,
		.queuecommand = busy, .eh_abort_handler = was_reset, .eh_device_reset_handler = was_reset,
		.eh_bus_reset_handler = was_reset, .eh_host_reset_handler = was_reset,
	};
#define SAME(field) template->field = driver->field
	SAME(cmd_size);
	SAME(can_queue);
	SAME(this_id);
	SAME(sg_tablesize);
	SAME(sg_prot_tablesize);
	SAME(max_sectors);
	SAME(max_segment_size);
	SAME(dma_boundary);
	SAME(virt_boundary_mask);
	SAME(cmd_per_lun);
	SAME(track_queue_depth);
	SAME(supported_mode);
	SAME(emulated);
	SAME(skip_settle_delay);
	SAME(no_write_same);
	SAME(host_tagset);
	SAME(max_host_blocked);
	SAME(vendor_id);
#undef SAME
}

struct guardrail_stand_in *guardrail_stand_in_for(const struct scsi_host_template *driver)
{
	struct guardrail_stand_in *one, *found = NULL;

	lockdep_assert_held(&guardrail_parked_lock);
	list_for_each_entry(one, &stand_ins, list) {
		if (one->hosts && one->driver == driver)
			return one;
		if (!one->hosts)
			found = one;
	}
	if (!found) {
		found = kzalloc(sizeof(*found), GFP_KERNEL);
		if (!found)
			return NULL;
		list_add(&found->list, &stand_ins);
		atomic_set(&found->module.refcnt, 1 + GUARDRAIL_STAND_IN_USES);
	}
	fill_template(found, driver);
	return found;
}

void guardrail_move_uses(struct module *from, int none, struct module *to)
{
	int n = module_refcount(from) - none;

	for (; n > 0; n--) {
		__module_get(to);
		module_put(from);
	}
	for (; n < 0; n++) {
		__module_get(from);
		module_put(to);
	}
}

void guardrail_stand_ins_exit(void)
{
	struct guardrail_stand_in *one, *next;

	list_for_each_entry_safe(one, next, &stand_ins, list)
		kfree(one);
}
