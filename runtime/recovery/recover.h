/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the parts of the recovery of a domain know of each other. */
#ifndef GUARDRAIL_RECOVER_H
#define GUARDRAIL_RECOVER_H

#include <linux/list.h>
#include <linux/netdevice.h>
#include <linux/pci.h>

/* No domain has more modules, and no driver is asked for more devices than that at once. */
#define MAX_MODULES 16
#define MAX_DEVICES 32

/* What was released, by kind. */
struct released {
	unsigned int timers, works, irqs, devices, netdevs, miscdevices, frames, mappings, allocations;
	unsigned int left;	/* nobody here knows how to release them */
};

/* The modules of a domain, the last one first, as they are to go. */
struct guarded_modules {
	unsigned int n;
	struct module *module[MAX_MODULES];
	char name[MAX_MODULES][MODULE_NAME_LEN];
};
void guardrail_modules_of(u32 domain, struct guarded_modules *modules);
/*
 * Keeps all modules of a dead domain from which all is taken: they stay in memory and are entered no more, and those that come get their
 * names. For what may have pointers to them that cannot be found.
 */
int guardrail_keep_modules(u32 domain);
/* True where so many more may be kept. */
bool guardrail_can_keep(unsigned int n);

/*
 * Memory that devices may still write to. Taking the right to reach memory from a device does not end what it was told to do, and the driver that
 * comes anew gives it that right before it resets it: until then the memory stays whose it was.
 */
struct late {
	struct list_head memory;
	struct pci_dev *devices[MAX_DEVICES];
	unsigned int n_devices;
	u32 domain;
	bool forever;	/* no driver comes anew for this */
	bool kept;	/* the kernel goes on with some of the memory */
};

/*
 * teardown.c: takes all from a dead domain in which nobody is any more, and leaves the release of some memory for later. @forever: its modules do
 * not come anew.
 */
void guardrail_teardown(u32 domain, const struct guarded_modules *modules, bool forever, struct released *released, struct late *late);
/* Releases it: the devices have been reset by their driver, or have none and reach no memory. */
void guardrail_release_late(struct late *late);
/* Polls that were refused while their instance was scheduled are over, and whoever waits for that goes on. */
void guardrail_settle_polls(u32 domain);
/* Devices that modules have stop to reach memory and to interrupt; the kernel sends nothing through network devices of the domain. */
void guardrail_silence(u32 domain, const struct guarded_modules *modules);

/* True for an address in one of the modules. */
bool guardrail_is_of(const void *p, const struct guarded_modules *modules);

/* restore_scsi.c: hosts that stay while their driver goes and comes again. */
/*
 * Takes the domain's hosts from its modules, in which nobody is any more. Commands wait for the driver that comes anew, or fail until one
 * comes.
 */
void guardrail_park_hosts(u32 domain, const struct guarded_modules *modules, bool fails);
/* Waits until the hosts have a driver again; the number of those that have not. */
unsigned int guardrail_settle_hosts(u32 domain);
/* Commands for what still has no driver fail. */
void guardrail_fail_hosts(u32 domain);
void guardrail_restore_scsi_exit(void);

/* objects_slab.c: slab caches. */
/* The domain's caches are nobody's, and have constructors that are no more, until they come again. */
void guardrail_caches_dead(u32 domain);
/* Those that are nobody's go. */
void guardrail_caches_destroy(u32 domain);
/* Makes of an object that is to be freed what its cache has free; false where that cannot be done, and it has to stay. */
bool guardrail_construct(u32 domain, unsigned long start, unsigned long size);

/* objects_irq.c: handlers of interrupts. */
struct irqaction;
/* Whether one of this interrupt is wanted. */
bool guardrail_find_action(unsigned int irq, bool (*wanted)(const struct irqaction *action, void *data), void *data);
/* The domain's interrupts are freed. */
void guardrail_irqs_forget(u32 domain);

/* restart.c: calls that are made again when a file system has recovered. */
void guardrail_restart(u32 domain, bool ended);
/* The same for a call that came upon a file system without a driver. */
void guardrail_restart_dead(void);
void guardrail_restarts_begin(u32 domain);
void guardrail_restarts_end(u32 domain, bool recovered);

/* restore_fs.c: file systems that stay mounted while their driver goes and comes again. */
struct super_block;
/* A mounted file system whose driver is dead. */
struct dead_fs {
	struct list_head list;
	u32 domain;
	struct super_block *sb;
	const char *type, *source;
	char *options;
	void *device;			/* what keeps the block device open */
	unsigned long offset, size;	/* of an inode in its allocation, and of that; 0 where that is not known */
	struct dead_inode *inodes;
	unsigned int n_inodes;
	unsigned int lost;		/* files that could not be handed over */
	bool restored;
};
/* An inode of it, and a name that it has. */
struct dead_inode {
	struct inode *inode;
	struct dentry *dentry;
	bool held;			/* it is not about to go */
};
/* Takes the domain's file systems from its modules; the number of those, or an error where one has to stay as it is. */
int guardrail_park_fs(u32 domain);
/* True for an allocation in which an inode is that stays. */
bool guardrail_keeps_allocation(u32 domain, unsigned long start, unsigned long size);
/* Its types of file systems are known to the kernel no more. */
void guardrail_forget_fs_types(u32 domain);
/* Mounts them anew and hands all over; the number of those that could not be. */
unsigned int guardrail_restore_fs(u32 domain);

/* restore_files.c: what refers to a file system. */
extern const struct file_operations guardrail_dead_file_operations;
/* Files of it that processes have open or mapped have functions of no driver from now on. */
void guardrail_park_files(const struct super_block *sb);
/* Mounts, files and folders of processes become those of the file system that is mounted at @root. */
int guardrail_hand_over(struct dead_fs *dead, struct vfsmount *root);
/* What was written is written to the new file system where it is not there. */
void guardrail_copy_data(struct dead_fs *dead, struct vfsmount *root);
/* Folios that ended entries have left locked are unlocked. */
void guardrail_unlock_data(struct dead_fs *dead);
/* I_… of an inode. */
unsigned int guardrail_inode_state(struct inode *inode);
/* The number of threads that write to a file system at one of SB_FREEZE_… less 1. */
int guardrail_writers(const struct super_block *sb, int level);

/* restore_net.c: how network devices are set up. */
/* Notes how the domain's network devices are set up, in a list of its own. */
void guardrail_save_netdevs(u32 domain, struct list_head *saved);
/* A network device is about to be registered: it gets the name and number of the one before it. */
void guardrail_netdev_comes(struct net_device *dev);
/* Sets the devices up as they were; the number of those that did not come again. */
unsigned int guardrail_restore_netdevs(struct list_head *saved);
void guardrail_forget_netdevs(struct list_head *saved);

#endif /* GUARDRAIL_RECOVER_H */
