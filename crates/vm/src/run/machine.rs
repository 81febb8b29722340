//! QEMU's command line for a run.

use crate::error::{Error, Result};
use crate::exercise::catalog::Class;
use crate::exercise::disk::Image;
use crate::guest_image::prepare::Prepared;
use crate::guest_image::root::{Root, SERIAL};
use crate::kernel::direct;
use crate::run::options::{DeviceSide, Forward, Kept, Options, Plugin, Start, TcgThreads};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name by which a saved guest finds the files that it is given.
const GIVEN: &str = "opt/guardrail/files";
/// The id of a device that has no id of its own.
const DEVICE: &str = "dut";
/// What the kernel reads of its command line (`COMMAND_LINE_SIZE`, with the zero behind).
const MAX_ARGUMENTS: usize = 2047;

/// The descriptors that QEMU inherits: its ends of the channels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Channels {
    pub(crate) console: i32,
    pub(crate) progress: i32,
    pub(crate) qmp: i32,
    pub(crate) ports: i32,
}

/// The files that a guest starts from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Files<'a> {
    pub(crate) kernel: &'a Path,
    pub(crate) initramfs: &'a Path,
    /// What a guest reads that was saved; an initramfs of a guest that boots otherwise.
    pub(crate) given: &'a [PathBuf],
    pub(crate) disk: Option<&'a Image>,
}

/// Builds the command, with the plugins under names that QEMU can open.
pub(crate) fn command(
    prepared: &Prepared,
    options: &Options,
    files: Files<'_>,
    plugins: &[Plugin],
    channels: Channels,
) -> Command {
    let Files { kernel, initramfs, given, disk } = files;
    let mut command = prepared.qemu.command();
    let threads = match options.threads {
        TcgThreads::Single => "single",
        TcgThreads::Multi => "multi",
    };
    // The old machine type cannot have an IOMMU.
    let machine = if options.iommu { "q35" } else { "pc" };
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", machine]);
    command.arg("-accel").arg(format!("tcg,thread={threads}"));
    // Five-level paging would only make page walks longer.
    command.args(["-cpu", "max,la57=off"]);
    command.arg("-smp").arg(options.cpus.to_string()).arg("-m").arg(options.memory_mib.to_string());
    command.arg("-kernel").arg(kernel);
    match &options.start {
        Start::Boot | Start::Save(_) | Start::Keep(_) => command.arg("-initrd").arg(initramfs),
        Start::Saved(file) | Start::Kept(Kept { file, .. }) => {
            command.args(["-incoming", &format!("file:{}", file.display())]);
            // The guest's network devices did not move: nothing is to be announced.
            command.args(["-global", "migration.announce-rounds=0"])
        }
    };
    for (number, piece) in given.iter().enumerate() {
        command.args(["-fw_cfg", &format!("name={GIVEN}{number},file={}", escaped(piece))]);
    }
    command.arg("-append").arg(kernel_arguments(options));
    for (id, fd) in [("console", channels.console), ("progress", channels.progress), ("qmp", channels.qmp)] {
        command.arg("-chardev").arg(format!("socket,id={id},fd={fd}"));
    }
    command.args(options.rerun.iter().flat_map(|rerun| rerun.arguments()));
    if options.containable {
        command.arg("-chardev").arg(format!("socket,id=ports,fd={}", channels.ports));
        command.args(["-qtest", "chardev:ports", "-qtest-log", "none"]);
    }
    command.args([
        "-serial",
        "chardev:console",
        "-serial",
        "chardev:progress",
        "-mon",
        "chardev=qmp,mode=control",
    ]);
    if options.iommu {
        // It precedes the devices, because QEMU must know of it before them.
        command.args(["-device", "intel-iommu"]);
    }
    if !options.device_elsewhere {
        let DeviceSide { arguments, devices, .. } = device_side(prepared, options, disk);
        command.args(arguments);
        for (i, option) in devices.into_iter().enumerate() {
            // There is no boot ROM: the guest boots its kernel directly, and ROMs cost time.
            let rom = if option.contains("netdev=") { ",romfile=" } else { "" };
            // The driver serves the first device; the others depend on it.
            let id = if i == 0 && id_of(&option).is_none() { format!(",id={DEVICE}") } else { String::new() };
            command.arg("-device").arg(format!("{option}{rom}{id}"));
        }
    }
    command.args(root_disk(prepared));
    for plugin in plugins {
        let (library, config) = (escaped(&plugin.library), escaped(&plugin.config));
        // A kernel that runs already does not show where it was moved to.
        let slide = match &options.start {
            Start::Kept(kept) => format!(",slide={:#x}", kept.slide),
            _ => String::new(),
        };
        command.arg("-plugin").arg(format!("{library},config={config}{slide}"));
    }
    command.args(&options.qemu_arguments);
    command
}

/// The command without what differs from run to run: all files but the kernel, channels and plugins.
pub(crate) fn shape(prepared: &Prepared, options: &Options, kernel: &Path) -> Command {
    let disk = prepared.choice.class.has_disk().then(|| Image { path: "disk".into(), bad: None });
    let files = Files { kernel, initramfs: Path::new(""), given: &[], disk: disk.as_ref() };
    let channels = Channels { console: 0, progress: 0, qmp: 0, ports: 0 };
    command(prepared, options, files, &[], channels)
}

/// The id of the driver's device in QEMU.
pub fn device_id(prepared: &Prepared) -> &str {
    let first = prepared.choice.device.as_ref().and_then(|device| device.options.first());
    first.and_then(|option| id_of(option)).unwrap_or(DEVICE)
}

fn id_of(option: &str) -> Option<&str> {
    option.split(',').find_map(|part| part.strip_prefix("id="))
}

/// The arguments for the device and its back ends.
pub(crate) fn device_side(prepared: &Prepared, options: &Options, disk: Option<&Image>) -> DeviceSide {
    let mut arguments: Vec<String> = match prepared.choice.class {
        Class::Network => vec!["-netdev".into(), network(&options.forwards)],
        Class::Sound => vec!["-audiodev".into(), "none,id=audio".into()],
        Class::Can => vec!["-object".into(), "can-bus,id=bus".into()],
        // The watchdog must have no effect: the run observes the driver, not a reset.
        Class::Watchdog => vec!["-action".into(), "watchdog=none".into()],
        _ => Vec::new(),
    };
    if options.rerun.is_some() && prepared.choice.class == Class::Network {
        arguments.extend(["-object".into(), "filter-replay,id=replay,netdev=net0".into()]);
    }
    arguments.extend(disk.into_iter().flat_map(|disk| drive(disk, options.rerun.is_some())));
    let device = prepared.choice.device.iter();
    arguments.extend(device.clone().flat_map(|device| device.arguments.clone()));
    let devices = device.flat_map(|device| device.options.clone()).collect();
    DeviceSide { arguments, devices, ..DeviceSide::default() }
}

/// The disk with the image of a root, which nobody writes. It comes last, so that other devices stay where they are.
fn root_disk(prepared: &Prepared) -> Vec<String> {
    let image = prepared.root.as_ref().and_then(Root::image);
    let Some(((path, _), device)) = image.zip(prepared.root_disk) else { return Vec::new() };
    let node = serde_json::json!({
        "driver": "raw", "node-name": "root", "read-only": true,
        "file": { "driver": "file", "filename": path.display().to_string(), "read-only": true, "locking": "off" },
    });
    let device = format!("{device},drive=root,serial={SERIAL}");
    ["-blockdev".into(), node.to_string(), "-device".into(), device].into()
}

/// The network's back end.
fn network(forwards: &[Forward]) -> String {
    let mut text = "user,id=net0,ipv6=off".to_owned();
    for Forward { udp, host, guest } in forwards {
        let protocol = if *udp { "udp" } else { "tcp" };
        text += &format!(",hostfwd={protocol}:127.0.0.1:{host}-10.0.2.15:{guest}");
    }
    text
}

/// The disk's back end. The image exists only as long as the run, so host caches may hold it.
fn drive(disk: &Image, rerun: bool) -> [String; 2] {
    let file = serde_json::json!({ "driver": "file", "filename": disk.path.display().to_string(), "locking": "off" });
    if rerun {
        // QEMU notes the completion of requests. A recording cannot have sectors that fail on reads.
        let node = serde_json::json!({
            "driver": "blkreplay", "node-name": "disk",
            "image": { "driver": "raw", "cache": { "no-flush": true }, "file": file },
        });
        return ["-blockdev".into(), node.to_string()];
    }
    let Some((read, write)) = disk.bad else {
        let file = escaped(&disk.path);
        return ["-drive".into(), format!("if=none,id=disk,format=raw,cache=unsafe,file={file}")];
    };
    let fail = |iotype: &str, sector: u64| serde_json::json!({ "event": "none", "iotype": iotype, "sector": sector, "errno": 5 });
    let node = serde_json::json!({
        "driver": "raw", "node-name": "disk", "cache": { "no-flush": true },
        "file": {
            "driver": "blkdebug", "inject-error": [fail("read", read), fail("write", write)],
            "image": file,
        },
    });
    ["-blockdev".into(), node.to_string()]
}

/// The host reads this console; the user may add others, but not replace it.
const CONSOLE: &str = "console=ttyS0";

/// Every so many milliseconds, KFENCE takes an allocation into its own pool. Debian's kernels have it from 6.12 on,
/// and leave it off. Others do not read the word.
const KFENCE: &str = "kfence.sample_interval=100";

/// A task that waits so many seconds without a chance to be woken is reported as hung, with where it waits. The
/// kernel's own 120 are longer than a guest may be silent ([`Limits`](super::options::Limits)).
const HUNG_TASK: &str = "sysctl.kernel.hung_task_timeout_secs=40";
/// The seconds between two looks for such tasks.
const HUNG_TASK_CHECKS: &str = "sysctl.kernel.hung_task_check_interval_secs=10";

/// A CPU that does not schedule for twice as many seconds is reported as locked up. The kernel's own 10 are for a machine
/// that is neither emulated nor watched: a softirq that receives packets took 22 s in a guest on a busy host.
const LOCKUP: &str = "watchdog_thresh=25";

/// The file that QEMU is to start. A kernel with a random address is written to `copy`. `initramfs` is a number of bytes.
///
/// A recorded machine and its replay start the same file, and the kernel's own KASLR needs its decompressor. When a
/// machine wakes that went to sleep, QEMU writes an unpacked kernel to the guest's memory once more. On a CPU of the
/// user's, the decompressor may have to turn on what that has, such as five levels of page tables.
pub(crate) fn kernel(
    prepared: &Prepared,
    options: &Options,
    initramfs: u64,
    copy: &Path,
) -> Result<KernelFile> {
    let Some(unpacked) = unpacked(prepared, options) else {
        return Ok(KernelFile { path: prepared.kernel.vmlinuz.clone(), slide: None });
    };
    // A saved guest has its kernel in its memory already.
    let saved = matches!(options.start, Start::Saved(_) | Start::Kept(_));
    let stays = !options.kaslr || asks(options, "nokaslr") || saved;
    let memory = u64::from(options.memory_mib) << 20;
    let moved =
        if stays { None } else { direct::moved(&prepared.parser, unpacked, memory, initramfs, copy)? };
    let path = if moved.is_some() { copy } else { unpacked }.to_path_buf();
    Ok(KernelFile { path, slide: Some(moved.unwrap_or(0)) })
}

/// The unpacked kernel that QEMU is to start; `None` where the kernel unpacks itself.
pub(crate) fn unpacked<'a>(prepared: &'a Prepared, options: &Options) -> Option<&'a Path> {
    let unpacks_itself = options.rerun.is_some()
        || asks(options, "kaslr")
        || prepared.may_sleep()
        || options.qemu_arguments.iter().any(|word| word == "-cpu");
    prepared.unpacked.as_deref().filter(|_| !unpacks_itself)
}

/// Whether the user's words for the kernel have this one.
fn asks(options: &Options, wanted: &str) -> bool {
    options.kernel_arguments.iter().any(|words| words.split(' ').any(|word| word == wanted))
}

/// What QEMU starts.
pub(crate) struct KernelFile {
    pub(crate) path: PathBuf,
    /// The distance by which the kernel was moved; `None` where it unpacks itself, and may move itself.
    pub(crate) slide: Option<u64>,
}

/// The guest kernel's command line.
fn kernel_arguments(options: &Options) -> String {
    let mut words = vec![
        CONSOLE,
        if options.whole_log { "loglevel=8" } else { "quiet" },
        "mitigations=off",
        // The kernel's own zeroing would hide what the driver leaves uninitialized.
        "init_on_alloc=0",
        "init_on_free=0",
        // An oops is a result: the guest ends at once, and -no-reboot makes QEMU end with it.
        "oops=panic",
        "panic=-1",
        // The emulated clock cannot improve; checks of it only cost time.
        "tsc=reliable",
        "no_timer_check",
        "random.trust_cpu=on",
        "rcupdate.rcu_cpu_stall_suppress=1",
    ];
    if options.whole_log {
        words.extend([KFENCE, HUNG_TASK, HUNG_TASK_CHECKS, LOCKUP]);
    }
    if !options.kaslr {
        words.push("nokaslr");
    }
    if options.iommu {
        words.extend(["intel_iommu=on", "iommu=nopt"]);
    }
    // The kernel also heeds the first occurrence of some words, so a word of the user replaces the default
    // one.
    let key = |word: &str| word.split_once('=').map(|(key, _)| key.to_owned());
    let asked: Vec<&str> = options.kernel_arguments.iter().flat_map(|words| words.split(' ')).collect();
    words.retain(|word| {
        *word == CONSOLE
            || key(word).is_none_or(|own| !asked.iter().any(|word| key(word).as_ref() == Some(&own)))
    });
    words.extend(asked);
    words.join(" ")
}

/// Refuses words that the kernel would not read, or would read as different words.
pub(crate) fn check_kernel_arguments(options: &Options) -> Result<()> {
    let bad = |why: String| Err(Error::BadValue(why));
    if let Some(word) = options.kernel_arguments.iter().find(|word| word.contains(char::is_control)) {
        return bad(format!("{word:?} is no word of a kernel command line: it holds a control character"));
    }
    match kernel_arguments(options).len() {
        length if length > MAX_ARGUMENTS => bad(format!(
            "the kernel's command line would have {length} characters, of which it reads no more than {MAX_ARGUMENTS}"
        )),
        _ => Ok(()),
    }
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
        options.kernel_arguments.push("mitigations=auto console=tty0".into());
        let words = kernel_arguments(&options);
        assert!(
            words.starts_with("console=ttyS0 ") && words.ends_with(" mitigations=auto console=tty0"),
            "{words}"
        );
        assert!(!words.contains("mitigations=off"), "{words}");
    }

    #[test]
    fn a_kernel_whose_log_is_read_says_more() {
        let mut options = Options::new(Path::new("/run"));
        assert!(kernel_arguments(&options).contains(" quiet "));
        options.whole_log = true;
        let words = kernel_arguments(&options);
        assert!(words.contains(" loglevel=8 ") && words.contains(" kfence.sample_interval=100 "), "{words}");
        let seconds = |word: &str| word.rsplit('=').next().and_then(|n| n.parse::<u64>().ok()).unwrap();
        let reported = seconds(HUNG_TASK) + seconds(HUNG_TASK_CHECKS);
        assert!(words.ends_with(&format!("{HUNG_TASK} {HUNG_TASK_CHECKS} {LOCKUP}")), "{words}");
        for reported in [reported, 2 * seconds(LOCKUP)] {
            assert!(
                reported < options.limits.silence.as_secs(),
                "the guest is given up before it is reported"
            );
        }
        options.kernel_arguments.push("kfence.sample_interval=0 loglevel=4".into());
        let words = kernel_arguments(&options);
        assert!(!words.contains("=100") && !words.contains("=8"), "{words}");
    }

    #[test]
    fn words_that_the_kernel_would_not_read_are_refused() {
        let mut options = Options::new(Path::new("/run"));
        options.iommu = true;
        options.kernel_arguments.push("swiotlb=force".into());
        assert!(check_kernel_arguments(&options).is_ok());
        assert!(kernel_arguments(&options).ends_with(" intel_iommu=on iommu=nopt swiotlb=force"));
        options.kernel_arguments.push("x".repeat(MAX_ARGUMENTS));
        assert!(check_kernel_arguments(&options).is_err());
        options.kernel_arguments = vec!["a\nb".into()];
        assert!(check_kernel_arguments(&options).is_err());
    }

    #[test]
    fn a_disk_with_bad_sectors_is_another_back_end() {
        let mut disk = Image { path: "/a,b".into(), bad: None };
        assert!(drive(&disk, false)[1].ends_with("file=/a,,b"));
        disk.bad = Some((10, 20));
        let [option, node] = drive(&disk, false);
        assert_eq!(option, "-blockdev");
        assert!(node.contains(r#""iotype":"write""#) && node.contains(r#""filename":"/a,b""#));
    }

    #[test]
    fn ports_are_forwarded_on_the_loopback_address_alone() {
        let forwards = ["tcp:8080:80", "udp:5201:5201"].map(|text| text.parse().unwrap());
        let network = network(&forwards);
        assert!(network.contains(",hostfwd=tcp:127.0.0.1:8080-10.0.2.15:80,hostfwd=udp:127.0.0.1:5201-"));
        for bad in ["8080:80", "tcp:8080", "tcp:x:80", "sctp:1:1", "tcp:1:70000"] {
            assert!(bad.parse::<Forward>().is_err(), "{bad}");
        }
    }

    #[test]
    fn commas_in_paths_do_not_separate_options() {
        assert_eq!(escaped(Path::new("/a,b/disk.img")), "/a,,b/disk.img");
    }
}
