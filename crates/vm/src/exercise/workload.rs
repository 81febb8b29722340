//! The scripts that exercise a driver inside the guest.

use crate::error::{Context, Error, Result, suggest};
use crate::exercise::catalog::Class;
use crate::exercise::syz::{self, Program};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The largest script that is accepted, in bytes.
const MAX_SCRIPT: u64 = 1 << 20;

/// A script that the guest runs between load and unload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// `network`, `storage`, `load`, or the path of a script.
    pub name: String,
    /// The class of the device that it needs.
    pub needs: Class,
    /// The text of the script.
    pub script: String,
    /// True for a script or a program of the user's.
    from_user: bool,
    /// True for a program, which has the variables in its environment.
    runs_program: bool,
    /// The variables that it reads, with their defaults.
    pub defaults: Vec<(&'static str, &'static str)>,
    /// The programs that it uses besides those of every guest (see [`crate::fetch::software`]).
    pub software: &'static [&'static str],
    /// The modules that it needs, in the spelling of the catalog.
    pub modules: &'static [&'static str],
}

/// The name of the workload that runs everything of a class.
pub const FULL: &str = "full";

/// The names of the workloads that are part of Guardrail, with a description.
pub const NAMES: [(&str, &str); 12] = [
    ("network", "link up, ping, downloads and uploads with checksum, small requests, ethtool, down"),
    ("changes", "a network interface that sends is changed: MTU, rings, self test, suspend, unbind and bind"),
    ("storage", "read and verify a disk, write, drop caches, verify again"),
    ("usb", "the same on a small disk behind a USB controller"),
    ("load", "load, wait a moment, unload"),
    (
        "synthetic",
        "what a driver made of a synthetic device is read, used, taken again with other answers, unplugged",
    ),
    (
        "files",
        "files and folders of a file system on a disk in memory, mounted again and again; needs no device",
    ),
    ("files-ext4", "the same for ext4"),
    ("filter", "rules, sets and maps of the packet filter under traffic of its own; needs no device"),
    ("stress", "stress-ng over its memory, filesystem, network and scheduler classes; needs no device"),
    ("churn", "modules of the kernel loaded and unloaded, 50 rounds; needs no device"),
    (
        FULL,
        "all of the class: also settings, errors, suspend, unbind and bind, both CPUs at once, unload under load",
    ),
];

/// The script that all of them begin with.
const DEVICE: &str = include_str!("../../../../guest/workloads/device.sh");
const NETWORK: &str = include_str!("../../../../guest/workloads/network.sh");
const CHANGES: &str = include_str!("../../../../guest/workloads/changes.sh");
const STORAGE: &str = include_str!("../../../../guest/workloads/storage.sh");
const FULL_ALL: &str = include_str!("../../../../guest/workloads/full.sh");
const FULL_NETWORK: &str = include_str!("../../../../guest/workloads/full-network.sh");
const FULL_STORAGE: &str = include_str!("../../../../guest/workloads/full-storage.sh");
const FULL_SOUND: &str = include_str!("../../../../guest/workloads/full-sound.sh");
const FULL_INPUT: &str = include_str!("../../../../guest/workloads/full-input.sh");
const FULL_OTHER: &str = include_str!("../../../../guest/workloads/full-other.sh");
const SYNTHETIC: &str = include_str!("../../../../guest/workloads/synthetic.sh");
const LOAD: &str = include_str!("../../../../guest/workloads/load.sh");
/// The script before a program of the user's.
const EXEC: &str = include_str!("../../../../guest/workloads/exec.sh");
/// Where a guest has the script of the user's that runs in a root of the user's.
pub(crate) const SCRIPT_IN_ROOT: &str = "guardrail/inside";
/// The shell of a root, which runs it.
pub(crate) const SHELL: &str = "/bin/sh";
/// The scripts before a program or a script in a root of the user's, and at the beginning of such a script.
const ROOT: &str = include_str!("../../../../guest/workloads/root.sh");
const INSIDE: &str = include_str!("../../../../guest/workloads/inside.sh");
/// The script and the program for programs in syzkaller's form.
const SYZ: &str = include_str!("../../../../guest/workloads/syz.sh");
const SYZ_RUNNER: &str = include_str!("../../../../guest/workloads/syz.c");
/// The script of a guest that continues after the workload.
const COMMANDS: &str = include_str!("../../../../guest/workloads/commands.sh");
const STRESS: &str = include_str!("../../../../guest/workloads/stress.sh");
const FILES_ALL: &str = include_str!("../../../../guest/workloads/files.sh");
const FILTER: &str = include_str!("../../../../guest/workloads/filter.sh");
const CHURN: &str = include_str!("../../../../guest/workloads/churn.sh");
const BENCH_SERVER: &str = include_str!("../../../../guest/benchmarks/bench-server.sh");
const BENCH_NETWORK: &str = include_str!("../../../../guest/benchmarks/bench-network.sh");
const BENCH_POSTMARK: &str = include_str!("../../../../guest/benchmarks/bench-postmark.sh");
const BENCH_AUDIO: &str = include_str!("../../../../guest/benchmarks/bench-audio.sh");
const BENCH_TRANSFER: &str = include_str!("../../../../guest/benchmarks/bench-transfer.sh");
const BENCH_DISK: &str = include_str!("../../../../guest/benchmarks/bench-disk.sh");

const BENCH_KERNEL: &str = include_str!("../../../../guest/benchmarks/bench-kernel.sh");
const BENCH_KERNEL_MICRO: &str = include_str!("../../../../guest/benchmarks/bench-kernel-micro.sh");
const BENCH_KERNEL_FILES: &str = include_str!("../../../../guest/benchmarks/bench-kernel-files.sh");
const BENCH_KERNEL_WEB: &str = include_str!("../../../../guest/benchmarks/bench-kernel-web.sh");
const BENCH_KERNEL_COMPILE: &str = include_str!("../../../../guest/benchmarks/bench-kernel-compile.sh");

/// C programs that benchmarks compile in the guest, by their file names there.
const CLOCK: (&str, &str) = ("kernel-clock.h", include_str!("../../../../guest/benchmarks/kernel-clock.h"));
const MICRO: (&str, &str) = ("kernel-micro.c", include_str!("../../../../guest/benchmarks/kernel-micro.c"));
const FILES: (&str, &str) = ("kernel-files.c", include_str!("../../../../guest/benchmarks/kernel-files.c"));

/// A workload that is made for no class. Its first step requests the device if it needs one, so it fits every
/// class. Most are benchmarks, which `bench/guard` and `bench/kernel` run.
struct Benchmark {
    name: &'static str,
    /// The parts of the script, in order.
    script: &'static [&'static str],
    /// Files that the script finds in `/tmp`, by name.
    sources: &'static [(&'static str, &'static str)],
    defaults: &'static [(&'static str, &'static str)],
    software: &'static [&'static str],
    modules: &'static [&'static str],
}

const NOBODY: (&str, &str) = ("CONTROL", "");

const ALL: (&str, &str) = ("PERCENT", "100");
/// Modules that depend on each other, register in many subsystems, and have threads and memory of their own.
const CHURNED: &[&str] =
    &["crc32c_generic?", "dummy", "veth", "loop", "brd", "tun", "bridge", "nf_tables", "ext4"];

/// A benchmark that needs nothing.
const PLAIN: Benchmark =
    Benchmark { name: "", script: &[], sources: &[], defaults: &[], software: &[], modules: &[] };

/// A server in the guest, with a load from this machine.
const fn serving(
    name: &'static str,
    defaults: &'static [(&'static str, &'static str)],
    software: &'static [&'static str],
) -> Benchmark {
    Benchmark { name, script: &[BENCH_SERVER, BENCH_NETWORK], defaults, software, ..PLAIN }
}

const BENCHMARKS: [Benchmark; 17] = [
    serving("bench-web", &[("SERVER", "web"), NOBODY], &["nginx"]),
    serving("bench-memcached", &[("SERVER", "memcached"), NOBODY], &["memcached"]),
    serving("bench-stream", &[("SERVER", "stream"), NOBODY], &["iperf3"]),
    serving("bench-request", &[("SERVER", "request"), NOBODY], &["sockperf"]),
    Benchmark {
        name: "bench-postmark",
        script: &[BENCH_POSTMARK],
        defaults: &[("FILES", "1000"), ("TRANSACTIONS", "2000")],
        software: &["postmark", "mke2fs", "e2fsck"],
        modules: &["crc32c_generic?", "ext4"],
        ..PLAIN
    },
    Benchmark {
        name: "bench-audio",
        script: &[BENCH_AUDIO],
        defaults: &[("SECONDS", "10")],
        software: &["aplay"],
        ..PLAIN
    },
    Benchmark {
        name: "bench-transfer",
        script: &[BENCH_TRANSFER],
        defaults: &[
            ("SERVER_PORT", "5201"),
            ("PROTOCOL", "tcp"),
            ("DIRECTION", "send"),
            ("BYTES", "33554432"),
            ("LENGTH", "16"),
            ("RATE", "0"),
        ],
        software: &["iperf3"],
        ..PLAIN
    },
    Benchmark {
        name: "bench-disk",
        script: &[BENCH_DISK],
        defaults: &[("MB", "32"), ("ROUNDS", "2")],
        ..PLAIN
    },
    Benchmark {
        name: "bench-kernel-micro",
        script: &[BENCH_KERNEL, BENCH_KERNEL_MICRO],
        sources: &[CLOCK, MICRO],
        defaults: &[ALL],
        software: &["tcc", "perf"],
        ..PLAIN
    },
    Benchmark {
        name: "bench-kernel-files",
        script: &[BENCH_KERNEL, BENCH_KERNEL_FILES],
        sources: &[CLOCK, FILES],
        defaults: &[ALL],
        software: &["tcc", "mke2fs", "dbench"],
        modules: &["crc32c_generic?", "ext4"],
    },
    Benchmark {
        name: "bench-kernel-web",
        script: &[BENCH_KERNEL, BENCH_SERVER, BENCH_KERNEL_WEB],
        sources: &[CLOCK, MICRO],
        defaults: &[ALL],
        software: &["tcc", "nginx", "ab"],
        ..PLAIN
    },
    Benchmark {
        name: "bench-kernel-compile",
        script: &[BENCH_KERNEL, BENCH_KERNEL_COMPILE],
        sources: &[CLOCK, MICRO],
        defaults: &[ALL],
        software: &["tcc", "make"],
        ..PLAIN
    },
    Benchmark {
        name: "stress",
        script: &[STRESS],
        defaults: &[
            ("CLASSES", "memory filesystem network scheduler"),
            ("STRESSORS", ""),
            ("OPERATIONS", "10"),
            ("SECONDS", "1"),
        ],
        software: &["stress-ng", "mke2fs"],
        modules: &["crc32c_generic?", "ext4", "loop"],
        ..PLAIN
    },
    Benchmark {
        name: "files",
        script: &[FILES_ALL],
        defaults: &[
            ("FILESYSTEM", "vfat"),
            (
                "OPTIONS",
                "utf8,flush,discard utf8,sync,nfs=stale_rw shortname=mixed,quiet,check=s,uni_xlate,tz=UTC",
            ),
            ("FILES", "32"),
            ("DISK_MB", "40"),
            ("STRESSORS", "dentry dir filename getdent hdd rename sync-file utime"),
            ("OPERATIONS", "20"),
        ],
        software: &["stress-ng", "mke2fs"],
        modules: &["crc32c_generic?", "loop", "nls_cp437?", "nls_ascii?", "nls_utf8?"],
        ..PLAIN
    },
    Benchmark {
        name: "files-ext4",
        script: &[FILES_ALL],
        defaults: &[
            ("FILESYSTEM", "ext4"),
            ("OPTIONS", "data=journal,nodelalloc data=writeback,discard,commit=1"),
            ("FILES", "16"),
            ("DISK_MB", "24"),
            ("STRESSORS", "rename"),
            ("OPERATIONS", "5"),
        ],
        software: &["stress-ng", "mke2fs"],
        modules: &["crc32c_generic?", "loop"],
        ..PLAIN
    },
    Benchmark {
        name: "filter",
        script: &[FILTER],
        defaults: &[("RULES", "200"), ("ELEMENTS", "1000"), ("ROUNDS", "10")],
        software: &["nft"],
        modules: &["crc32c_generic?"],
        ..PLAIN
    },
    Benchmark { name: "churn", script: &[CHURN], defaults: &[("ROUNDS", "50")], modules: CHURNED, ..PLAIN },
];

/// Shell code that writes a file and then continues.
fn here(name: &str, text: &str) -> String {
    format!("cat >/tmp/{name} <<'END_OF_FILE'\n{text}END_OF_FILE\n")
}

impl Workload {
    /// True where the script may send the machine to sleep (S3) and wake it. One that tests the devices' part alone
    /// (`pm_test`) does not.
    pub(crate) fn may_sleep(&self) -> bool {
        may_sleep(&self.script)
    }

    /// The workload that fits a class.
    pub fn for_class(class: Class) -> Workload {
        Workload::named(match class {
            Class::Network => "network",
            Class::Storage => "storage",
            Class::Usb => "usb",
            _ => "load",
        })
        .expect("these names are known")
    }

    /// Everything that exists for a class: its usual workload, further steps of the class, and the steps for
    /// all drivers.
    pub fn full(class: Class) -> Workload {
        let usual = Workload::for_class(class);
        let more = match class {
            Class::Network => FULL_NETWORK,
            Class::Storage | Class::Usb => FULL_STORAGE,
            Class::Sound => FULL_SOUND,
            Class::Input => FULL_INPUT,
            _ => FULL_OTHER,
        };
        // The last definition of a function is the one that counts: the parts follow in that order, and
        // `full.sh` runs them.
        Workload {
            name: FULL.to_owned(),
            needs: class,
            script: [&usual.script, more, FULL_ALL].join("\n"),
            ..usual
        }
    }

    fn named(name: &str) -> Option<Workload> {
        let (needs, script, defaults): (_, _, &[_]) = match name {
            "network" => (
                Class::Network,
                NETWORK,
                &[
                    ("DOWNLOAD_MB", "8"),
                    ("REQUESTS", "30"),
                    ("UPLOADS", "2"),
                    ("PINGS", "3"),
                    ("UNCHECKED", ""),
                ],
            ),
            "changes" => (
                Class::Network,
                CHANGES,
                &[("CHANGES", "mtu rings channels selftest closed suspend rebind"), ("ROUNDS", "2")],
            ),
            "storage" => (Class::Storage, STORAGE, &[("UNCHECKED", "")]),
            "usb" => (Class::Usb, STORAGE, &[("UNCHECKED", "")]),
            "load" => (Class::None, LOAD, &[]),
            "synthetic" => (Class::None, SYNTHETIC, &[("ANSWERS", "12")]),
            "commands" => (Class::None, COMMANDS, &[]),
            _ => return Workload::benchmark(name),
        };
        Some(Workload {
            name: name.to_owned(),
            needs,
            script: [DEVICE, script].join("\n"),
            from_user: false,
            runs_program: false,
            defaults: defaults.to_vec(),
            software: &[],
            modules: &[],
        })
    }

    fn benchmark(name: &str) -> Option<Workload> {
        let benchmark = BENCHMARKS.iter().find(|benchmark| benchmark.name == name)?;
        Some(Workload {
            name: name.to_owned(),
            needs: Class::None,
            script: std::iter::once(DEVICE.to_owned())
                .chain(benchmark.sources.iter().map(|(name, text)| here(name, text)))
                .chain(benchmark.script.iter().map(|&part| part.to_owned()))
                .collect::<Vec<_>>()
                .join("\n"),
            from_user: false,
            runs_program: false,
            defaults: benchmark.defaults.to_vec(),
            software: benchmark.software,
            modules: benchmark.modules,
        })
    }

    /// The workload that `wanted` names: one of ours, or a script or a program of syzkaller's form on disk.
    pub fn find(wanted: &str, class: Class) -> Result<Workload> {
        if wanted == FULL {
            return Ok(Workload::full(class));
        }
        if let Some(workload) = Workload::named(wanted) {
            if workload.needs != Class::None && workload.needs != class {
                return Err(Error::BadValue(format!(
                    "the workload '{wanted}' does not fit the driver's device; leave --workload out, or give a script"
                )));
            }
            return Ok(workload);
        }
        let path = Path::new(wanted);
        if !path.exists() {
            let names = NAMES.map(|(name, _)| name);
            return Err(Error::Unknown {
                what: "workload",
                name: wanted.to_owned(),
                near: suggest(wanted, names),
            });
        }
        if syz::is_program(path) {
            return Workload::from_syz(path);
        }
        Workload::from_script(path)
    }

    /// The program at `path`, in syzkaller's form.
    fn from_syz(path: &Path) -> Result<Workload> {
        let program = Program::open(path)?;
        let parts = [
            DEVICE.to_owned(),
            here("syz.c", SYZ_RUNNER),
            here("operations", &program.operations()),
            BENCH_KERNEL.to_owned(),
            EXEC.to_owned(),
            SYZ.to_owned(),
        ];
        Ok(Workload {
            name: path.display().to_string(),
            needs: Class::None,
            script: parts.join("\n"),
            from_user: false,
            runs_program: false,
            defaults: vec![("ROUNDS", "1"), ("CALL_SECONDS", "3")],
            software: &["tcc"],
            modules: &[],
        })
    }

    /// The variables that the user can set: the settings of a workload of ours, or the names in a script of
    /// the user that are behind a `$` or in capitals.
    pub fn variables(&self) -> BTreeSet<&str> {
        if !self.from_user {
            return self.defaults.iter().map(|(name, _)| *name).collect();
        }
        let words = self.words().filter_map(|(before, word)| {
            let read = before.ends_with(['$', '{']) || !word.contains(|c: char| c.is_ascii_lowercase());
            (read && is_variable(word)).then_some(word)
        });
        words.collect()
    }

    /// True where the script can read a variable that it does not name: a program, or a script of the user that makes
    /// names as it runs, or reads its whole environment.
    pub fn reads_any(&self) -> bool {
        self.runs_program
            || self.from_user && self.words().any(|(_, word)| ["eval", "env", "printenv"].contains(&word))
    }

    /// The words of the script, each with the text before it.
    fn words(&self) -> impl Iterator<Item = (&str, &str)> {
        let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let starts = self.script.match_indices(letter);
        starts.filter(move |(at, _)| !self.script[..*at].ends_with(letter)).map(move |(at, _)| {
            let (before, rest) = self.script.split_at(at);
            (before, &rest[..rest.find(|c| !letter(c)).unwrap_or(rest.len())])
        })
    }

    /// A program of the user's, which has these variables in its environment. `command` starts it in the guest.
    pub(crate) fn from_program<'a>(
        path: &Path,
        command: &str,
        variables: impl Iterator<Item = &'a str>,
    ) -> Workload {
        let exported: String = variables.map(|name| format!("export {name}\n")).collect();
        let script = format!("{DEVICE}\n{EXEC}\n{exported}step exec program {command}\n");
        Workload { name: path.display().to_string(), ..Workload::of_user(script, true) }
    }

    /// A program in a root of the user's.
    pub(crate) fn from_program_in_root(name: &str, command: &str) -> Workload {
        // The root is made before the program's own step, so that a failure says which of them failed.
        let script = format!(
            "{DEVICE}\n{EXEC}\n{ROOT}\ntrap 'kill $alive; leave_root' EXIT\nmkdir -p /root\nstep root make_root\n\
             step exec program in_root {command}\n"
        );
        Workload { name: name.to_owned(), ..Workload::of_user(script, true) }
    }

    /// This script of the user's, in a root of the user's. Returns the workload that runs it, and what it runs there.
    pub(crate) fn in_root(self) -> (Workload, String) {
        let inside = format!("{INSIDE}\n{}", self.script);
        let script = format!(
            "{DEVICE}\n{ROOT}\ntrap leave_root EXIT\nstep root make_root\nstep script bring_script /{SCRIPT_IN_ROOT}\n\
             step shell chroot $root {SHELL} -c :\n(in_root {SHELL} /run/guardrail/workload)\nstatus=$?\n\
             [ $status -lt 2 ] || say failed script \"exit status $status\"\n"
        );
        (Workload { name: self.name, ..Workload::of_user(script, true) }, inside)
    }

    /// True for a script or a program of the user's.
    pub(crate) fn is_of_user(&self) -> bool {
        self.from_user
    }

    fn of_user(script: String, runs_program: bool) -> Workload {
        Workload {
            name: String::new(),
            needs: Class::None,
            script,
            from_user: true,
            runs_program,
            defaults: Vec::new(),
            software: &[],
            modules: &[],
        }
    }

    /// The script at `path`.
    pub fn from_script(path: &Path) -> Result<Workload> {
        let bad = |why: &str| Error::BadWorkload { path: path.to_path_buf(), why: why.to_owned() };
        if !path.is_file() {
            return Err(bad("a workload is a shell script, not a folder"));
        }
        if fs::metadata(path).context("open", path)?.len() > MAX_SCRIPT {
            return Err(bad("it is larger than a script can be"));
        }
        let bytes = fs::read(path).context("read", path)?;
        let script = String::from_utf8(bytes).map_err(|_| bad("it is not text"))?;
        Ok(Workload { name: path.display().to_string(), ..Workload::of_user(script, false) })
    }
}

/// True for a valid name of a shell variable.
pub(crate) fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A value in quotes, so that a shell takes it literally.
pub(crate) fn shell_quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', "'\\''"))
}

/// True for a script that may send the machine to sleep.
pub(crate) fn may_sleep(script: &str) -> bool {
    let has = |word: &str| script.contains(word);
    has("mem_sleep") || has("rtcwake") || has("/sys/power/state") && !has("pm_test")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_that_sleep_are_known() {
        let may_sleep = |script: &str| {
            let plain = Workload::find("network", Class::Network).unwrap();
            Workload { script: script.to_owned(), ..plain }.may_sleep()
        };
        assert!(may_sleep("echo mem >/sys/power/state") && may_sleep("rtcwake -m mem -s 2"));
        assert!(may_sleep(
            "echo none >/sys/power/pm_test; echo deep >/sys/power/mem_sleep; echo mem >/sys/power/state"
        ));
        assert!(!may_sleep("echo devices >/sys/power/pm_test; echo mem >/sys/power/state"));
        assert!(!Workload::find(FULL, Class::Network).unwrap().may_sleep());
    }

    #[test]
    fn workloads_are_found_by_name_and_checked_against_the_class() {
        assert_eq!(Workload::find("network", Class::Network).unwrap().name, "network");
        assert!(matches!(Workload::find("network", Class::Storage), Err(Error::BadValue(_))));
        let message = Workload::find("netwrk", Class::Network).unwrap_err().to_string();
        assert_eq!(message, "there is no workload named 'netwrk'; the nearest is 'network'");
        assert!(NAMES.iter().all(|(name, _)| *name == FULL || Workload::named(name).is_some()));
    }

    #[test]
    fn the_full_workload_defines_for_every_class_what_it_calls() {
        for (name, class) in Class::NAMED {
            let full = Workload::find("full", class).unwrap();
            for function in ["class_steps() {", "again() {", "load() {", "bounded() {"] {
                assert!(full.script.contains(function), "{name} has no {function}");
            }
            assert_eq!(full.needs, class);
            assert_eq!(full.defaults, Workload::for_class(class).defaults);
        }
    }

    #[test]
    fn a_program_of_syzkallers_form_is_read_before_it_becomes_a_script() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.syz");
        let find = || Workload::find(&path.display().to_string(), Class::None);
        fs::write(&path, "close(0x3)\n").unwrap();
        let workload = find().unwrap();
        assert!(workload.script.contains("\ncall 3 close 1 - 3\nEND_OF_FILE\n"));
        assert_eq!(workload.variables().into_iter().collect::<Vec<_>>(), ["CALL_SECONDS", "ROUNDS"]);
        fs::write(&path, "close(0x3\n").unwrap();
        assert!(find().unwrap_err().to_string().ends_with("a.syz:1:10: expected ',' or ')'"));
    }

    #[test]
    fn values_are_quoted_for_the_shell() {
        assert_eq!(shell_quoted("it's; x"), "'it'\\''s; x'");
        assert!(is_variable("DISK_MB") && !is_variable("1A") && !is_variable("A B") && !is_variable(""));
    }
}
