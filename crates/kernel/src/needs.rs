//! What the configuration of a kernel must have: for the guest to boot and report, and for the tracer to follow it.
//!
//! The image shows it by symbols that only code of the option has. Names of options are for people; no version is
//! compared.

use guardrail_binfmt::{KernelError, KernelImage};

/// An option, and what there is only with it.
struct Need {
    /// What it gives, and its name, for messages.
    option: &'static str,
    /// A symbol of its code; of several, one suffices.
    symbols: &'static [&'static str],
}

/// The option that brings the names of variables. Without it, nothing can be said of options that only have those.
const ALL_SYMBOLS: Need =
    Need { option: "the names of its variables (CONFIG_KALLSYMS_ALL)", symbols: &["init_task"] };

/// Everything else, in the order in which a person meets it.
const NEEDS: [Need; 16] = [
    Need { option: "modules (CONFIG_MODULES)", symbols: &["__x64_sys_init_module"] },
    Need { option: "unloading of modules (CONFIG_MODULE_UNLOAD)", symbols: &["__x64_sys_delete_module"] },
    Need { option: "several processors (CONFIG_SMP)", symbols: &["start_secondary"] },
    Need { option: "the function tracer (CONFIG_DYNAMIC_FTRACE)", symbols: &["ftrace_module_init"] },
    Need {
        option: "a memory layout that is chosen at boot (CONFIG_RANDOMIZE_MEMORY or CONFIG_X86_5LEVEL)",
        symbols: &["page_offset_base"],
    },
    // Otherwise the address of a page does not follow from that of its `struct page` alone.
    Need {
        option: "a table of all pages in one piece (CONFIG_SPARSEMEM_VMEMMAP)",
        symbols: &["vmemmap_populate"],
    },
    Need { option: "messages (CONFIG_PRINTK)", symbols: &["vprintk_emit"] },
    Need {
        option: "a console on a serial port (CONFIG_SERIAL_8250_CONSOLE)",
        symbols: &["univ8250_console_setup", "univ8250_console_write"],
    },
    Need { option: "an initramfs (CONFIG_BLK_DEV_INITRD)", symbols: &["initrd_start"] },
    Need { option: "programs (CONFIG_BINFMT_ELF)", symbols: &["load_elf_binary"] },
    Need { option: "scripts (CONFIG_BINFMT_SCRIPT)", symbols: &["load_script"] },
    Need { option: "device files (CONFIG_DEVTMPFS)", symbols: &["devtmpfs_create_node", "devtmpfsd"] },
    Need { option: "/proc (CONFIG_PROC_FS)", symbols: &["proc_create_data"] },
    Need { option: "/sys (CONFIG_SYSFS)", symbols: &["sysfs_create_link"] },
    Need { option: "tmpfs (CONFIG_TMPFS)", symbols: &["shmem_fill_super"] },
    Need { option: "PCI (CONFIG_PCI)", symbols: &["__pci_register_driver"] },
];

/// Refuses a kernel that was built without options which every run needs; the error names all of them.
pub(crate) fn check(image: &KernelImage) -> Result<(), KernelError> {
    let lacking = lacking(|name| image.address_of(name).is_some());
    match lacking.is_empty() {
        true => Ok(()),
        false => Err(KernelError::Unconfigured {
            release: image.release().to_owned(),
            options: lacking.join(", "),
        }),
    }
}

/// What a kernel with these symbols lacks.
fn lacking(has: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let absent = |need: &&Need| !need.symbols.iter().any(|name| has(name));
    match Some(&ALL_SYMBOLS).filter(absent) {
        Some(all) => vec![all.option],
        None => NEEDS.iter().filter(absent).map(|need| need.option).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_is_missed_with_its_symbols_alone() {
        assert_eq!(lacking(|_| true), Vec::<&str>::new());
        for need in &NEEDS {
            assert_eq!(lacking(|name| !need.symbols.contains(&name)), [need.option]);
            assert!(need.option.contains("(CONFIG_"), "{}", need.option);
        }
    }

    #[test]
    fn without_the_names_of_variables_nothing_else_is_missed() {
        assert_eq!(lacking(|name| name != "init_task" && name != "initrd_start"), [ALL_SYMBOLS.option]);
        assert_eq!(lacking(|_| false), [ALL_SYMBOLS.option]);
    }
}
