//! QEMU's command line for a run.

use crate::catalog::Class;
use crate::prepare::Prepared;
use crate::run::{Options, TcgThreads};
use std::path::Path;
use std::process::Command;

/// The descriptors that QEMU inherits: its ends of the channels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Channels {
    pub(crate) console: i32,
    pub(crate) progress: i32,
    pub(crate) qmp: i32,
}

/// Builds the command.
pub(crate) fn command(
    prepared: &Prepared,
    options: &Options,
    initramfs: &Path,
    disk: Option<&Path>,
    channels: Channels,
) -> Command {
    let mut command = prepared.qemu.command();
    let threads = match options.threads {
        TcgThreads::Single => "single",
        TcgThreads::Multi => "multi",
    };
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", "pc"]);
    command.arg("-accel").arg(format!("tcg,thread={threads}"));
    // Five-level paging would only make page walks longer.
    command.args(["-cpu", "max,la57=off"]);
    command.arg("-smp").arg(options.cpus.to_string()).arg("-m").arg(options.memory_mib.to_string());
    command.arg("-kernel").arg(&prepared.kernel.vmlinuz).arg("-initrd").arg(initramfs);
    command.arg("-append").arg(kernel_arguments(options));
    for (id, fd) in [("console", channels.console), ("progress", channels.progress), ("qmp", channels.qmp)] {
        command.arg("-chardev").arg(format!("socket,id={id},fd={fd}"));
    }
    command.args([
        "-serial",
        "chardev:console",
        "-serial",
        "chardev:progress",
        "-mon",
        "chardev=qmp,mode=control",
    ]);
    if prepared.choice.class == Class::Network {
        command.args(["-netdev", "user,id=net0,ipv6=off"]);
    }
    if let Some(disk) = disk {
        let file = escaped(disk);
        // The image lives as long as the run: host caches may hold it.
        command.arg("-drive").arg(format!("if=none,id=disk,format=raw,cache=unsafe,file={file}"));
    }
    for option in prepared.choice.device.iter().flat_map(|device| &device.options) {
        // No boot ROM: the guest boots its kernel directly, and ROMs cost time.
        let rom = if option.contains("netdev=") { ",romfile=" } else { "" };
        command.arg("-device").arg(format!("{option}{rom}"));
    }
    if let Some(plugin) = &options.plugin {
        let (library, config) = (escaped(&plugin.library), escaped(&plugin.config));
        command.arg("-plugin").arg(format!("{library},config={config}"));
    }
    command.args(&options.qemu_arguments);
    command
}

/// The guest kernel's command line.
fn kernel_arguments(options: &Options) -> String {
    let mut words = vec![
        "console=ttyS0",
        "quiet",
        "mitigations=off",
        // The kernel's own zeroing would hide what the driver leaves uninitialized.
        "init_on_alloc=0",
        "init_on_free=0",
        // An oops is a result: the guest ends at once, and -no-reboot makes QEMU end with it.
        "oops=panic",
        "panic=-1",
        // The emulated clock is what it is; checks of it only cost time.
        "tsc=reliable",
        "no_timer_check",
        "random.trust_cpu=on",
        "rcupdate.rcu_cpu_stall_suppress=1",
    ];
    if !options.kaslr {
        words.push("nokaslr");
    }
    words.extend(options.kernel_arguments.iter().map(String::as_str));
    words.join(" ")
}

/// A path as a value in QEMU's option syntax, where commas separate.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_told_what_was_asked() {
        let mut options = Options::new(Path::new("/run"));
        assert!(!kernel_arguments(&options).contains("nokaslr"));
        options.kaslr = false;
        options.kernel_arguments.push("kfence.sample_interval=100".into());
        assert!(kernel_arguments(&options).ends_with(" nokaslr kfence.sample_interval=100"));
    }

    #[test]
    fn commas_in_paths_do_not_separate_options() {
        assert_eq!(escaped(Path::new("/a,b/disk.img")), "/a,,b/disk.img");
    }
}
