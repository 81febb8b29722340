// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Admission of certified modules. A kprobe sees the file of each module in the kernel's memory, in the thread that loads
 * it: what is hashed is what is linked and run. The same thread calls guardrail_module_enter() later.
 *
 * Each file that a thread reads replaces its digest or removes it, so an old digest never stands for a new file. A module
 * that hides what it is, or is read where no kprobe sees it, has no digest and is refused.
 */
#include <linux/firmware.h>
#include <linux/kernel_read_file.h>
#include <linux/kprobes.h>
#include <linux/moduleparam.h>
#include <linux/ptrace.h>
#include <linux/security.h>

#include "domain/admission.h"
#include "domain/digests.h"

static bool uncertified;
module_param(uncertified, bool, 0400);
MODULE_PARM_DESC(uncertified, "load modules that were not certified as well (default: no)");

static struct guardrail_digests digests = { .lock = __RAW_SPIN_LOCK_UNLOCKED(digests.lock) };

/* The current thread has read a file to load it as a module. Called in kprobes. */
static void note_file(const char *file, loff_t size)
{
	u8 sha256_of[SHA256_DIGEST_SIZE];
	bool guarded = file && size > 0 && size <= INT_MAX && guardrail_is_guarded_file(file, size);

	if (guarded)
		sha256((const u8 *)file, guardrail_unsigned_size(file, size), sha256_of);
	guardrail_digests_note(&digests, current, guarded ? sha256_of : NULL);
}

/* finit_module(): security_kernel_post_read_file(file, buf, size, id). */
static int on_file(struct kprobe *probe, struct pt_regs *regs)
{
	if ((u32)regs_get_kernel_argument(regs, 3) == READING_MODULE)
		note_file((const char *)regs_get_kernel_argument(regs, 1), regs_get_kernel_argument(regs, 2));
	return 0;
}

/* init_module(): security_kernel_post_load_data(buf, size, id, description). */
static int on_data(struct kprobe *probe, struct pt_regs *regs)
{
	if ((u32)regs_get_kernel_argument(regs, 2) == LOADING_MODULE)
		note_file((const char *)regs_get_kernel_argument(regs, 0), regs_get_kernel_argument(regs, 1));
	return 0;
}

static struct kprobe file_probe = { .symbol_name = "security_kernel_post_read_file", .pre_handler = on_file };
static struct kprobe data_probe = { .symbol_name = "security_kernel_post_load_data", .pre_handler = on_data };
static struct kprobe *probes[] = { &file_probe, &data_probe };
static bool is_probing;

int __init guardrail_admission_init(void)
{
	int err = register_kprobes(probes, ARRAY_SIZE(probes));

	is_probing = !err;
	if (is_probing)
		return 0;
	if (uncertified) {
		pr_warn("no module is seen while the kernel reads it, as there is no kprobe on %s and %s (error %d); with uncertified=1 all are loaded\n",
			file_probe.symbol_name, data_probe.symbol_name, err);
		return 0;
	}
	pr_err("modules that were not certified cannot be refused, as there is no kprobe on %s and %s (error %d); uncertified=1 loads them\n",
	       file_probe.symbol_name, data_probe.symbol_name, err);
	return err == -ENOENT ? -ENODEV : err;
}

void guardrail_admission_exit(void)
{
	if (is_probing)
		unregister_kprobes(probes, ARRAY_SIZE(probes));
}

/* Writes into @why what keeps the module from being admitted; false where nothing does. */
static bool is_uncertified(const struct module *module, char *why, size_t size)
{
	char path[sizeof("guardrail/.sha256") + MODULE_NAME_LEN];
	u8 sha256_of[SHA256_DIGEST_SIZE];
	const struct firmware *list;
	bool listed;
	int err;

	if (!guardrail_digests_find(&digests, current, sha256_of)) {
		scnprintf(why, size, "its file was not seen when the kernel read it, or does not say that it is guarded; load the file that guardrail guard wrote, uncompressed");
		return true;
	}
	/* The name is the module's own word, and must not lead elsewhere. */
	scnprintf(path, sizeof(path), "guardrail/%s.sha256", module->name);
	err = strchr(module->name, '/') ? -EINVAL : request_firmware_direct(&list, path, NULL);
	if (err) {
		scnprintf(why, size, "/lib/firmware/%s, which says what was certified, cannot be read (error %d); install the .sha256 that guardrail guard wrote beside the module",
			  path, err);
		return true;
	}
	listed = guardrail_is_listed(list->data, list->size, sha256_of);
	release_firmware(list);
	if (!listed)
		scnprintf(why, size, "it is not the module that was certified: its SHA-256 is %*phN, and /lib/firmware/%s has another; guard it again, or install its .sha256",
			  (int)sizeof(sha256_of), sha256_of, path);
	return !listed;
}

int guardrail_admit(const struct module *module)
{
	char why[320];

	if (!is_uncertified(module, why, sizeof(why)))
		return 0;
	if (uncertified) {
		pr_warn("%s is loaded only because of uncertified=1: %s\n", module->name, why);
		return 0;
	}
	pr_err("%s was refused: %s\n", module->name, why);
	return -EKEYREJECTED;
}
