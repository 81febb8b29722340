//! Titles of splats, as syzkaller's reports have them: the same fault has the same title on every kernel.

use crate::frames::Place;
use crate::signs::Sign;
use crate::splat::Splat;

/// Functions that report, wait or schedule for others. The one that calls them is the one at fault. A name that
/// ends in `*` stands for all that begin so.
const INNOCENT: &[&str] = &[
    "?",
    "dump_stack*",
    "show_stack*",
    "print_*",
    "__warn*",
    "warn_slowpath*",
    "report_bug",
    "handle_bug",
    "exc_*",
    "asm_exc_*",
    "asm_sysvec_*",
    "sysvec_*",
    "panic",
    "nmi_panic",
    "kasan_*",
    "__kasan_*",
    "__asan_*",
    "__kmsan_*",
    "kmsan_*",
    "kcsan_*",
    "__tsan_*",
    "kfence_*",
    "__kfence_*",
    "__ubsan_*",
    "ubsan_*",
    "refcount_warn_saturate",
    "__list_add_valid*",
    "__list_del_entry_valid*",
    "__might_sleep*",
    "__might_resched*",
    "__schedule*",
    "schedule*",
    "__cond_resched*",
    "lockdep_*",
    "lock_acquire*",
    "__lock_acquire*",
    "check_noncircular*",
    "down_*",
    "rwsem_*",
    "__mutex_lock*",
    "mutex_lock*",
    "wait_for_completion*",
    "__wait_for_common*",
    "msleep*",
    "usleep_range*",
    "_raw_spin_*",
    "native_*",
    "memcpy*",
    "memset*",
    "memmove*",
];

/// The innermost function that is at fault; `None` where no trace has one.
pub(crate) fn guilty(splat: &Splat) -> Option<&Place> {
    splat.trace.iter().find(|place| !is_innocent(&place.function)).or(splat.trace.first())
}

fn is_innocent(function: &str) -> bool {
    INNOCENT.iter().any(|name| match name.strip_suffix('*') {
        Some(start) => function.starts_with(start),
        None => function == *name,
    })
}

/// The title of a splat.
pub(crate) fn title(splat: &Splat) -> String {
    let line = splat.line.as_str();
    let at = guilty(splat).map_or(String::new(), |place| format!(" in {}", place.function));
    let after = |prefix: &str| line.strip_prefix(prefix).unwrap_or(line);
    // `KFENCE: use-after-free read in f+0x1/0x2` without its place.
    let sanitizer = |name: &str| {
        let what = after("BUG: ").strip_prefix(name).unwrap_or(line).trim_start_matches(": ");
        format!("{name}: {}{at}", what.split(" in ").next().unwrap_or(what))
    };
    match splat.sign {
        Sign::Warning | Sign::DmaDebug => format!("WARNING{at}"),
        Sign::Bug if line.starts_with("BUG: ") => line.chars().take(80).collect(),
        Sign::Bug => format!("kernel BUG{at}"),
        Sign::Oops => format!("{}{at}", oops(line)),
        Sign::Panic => format!("kernel panic: {}", after("Kernel panic - not syncing: ")),
        Sign::Refcount => format!("refcount bug{at}"),
        Sign::List => format!("BUG: corrupted list{at}"),
        Sign::Memory => match line.strip_prefix("BUG: ") {
            Some(rest) => {
                format!("BUG: {}{at}", rest.split_whitespace().take(3).collect::<Vec<_>>().join(" "))
            }
            None => format!("SLUB: {}{at}", line.rsplit_once(": ").map_or(line, |(_, what)| what)),
        },
        Sign::Undefined => {
            let what = after("UBSAN: ");
            format!("UBSAN: {}{at}", what.split(" in ").next().unwrap_or(what))
        }
        Sign::Kfence => sanitizer("KFENCE"),
        Sign::Kasan => sanitizer("KASAN"),
        Sign::Kmsan => sanitizer("KMSAN"),
        Sign::Kcsan => sanitizer("KCSAN"),
        Sign::Lockdep => format!("{}{at}", lockdep(line)),
        Sign::Atomic if line.contains("scheduling") => format!("BUG: scheduling while atomic{at}"),
        Sign::Atomic => format!("BUG: sleeping function called from invalid context{at}"),
        Sign::HungTask => format!("INFO: task hung{at}"),
        Sign::RcuStall => format!("INFO: rcu detected stall{at}"),
        Sign::Lockup if line.contains("hard") => format!("BUG: hard lockup{at}"),
        Sign::Lockup => format!("BUG: soft lockup{at}"),
        Sign::TxTimeout => "NETDEV WATCHDOG: transmit queue timed out".to_owned(),
        Sign::Leak => "memory leak".to_owned(),
        Sign::Interrupt => format!("unhandled interrupt{at}"),
    }
}

fn oops(line: &str) -> &str {
    let known = [
        ("NULL pointer dereference", "BUG: unable to handle kernel NULL pointer dereference"),
        ("BUG: unable to handle ", "BUG: unable to handle kernel paging request"),
        ("stack guard page", "BUG: stack guard page was hit"),
        ("general protection fault", "general protection fault"),
        ("divide error", "divide error"),
        ("invalid opcode", "invalid opcode"),
        ("stack segment", "stack segment fault"),
        ("double fault", "double fault"),
        ("int3", "int3"),
    ];
    known.iter().find(|(text, _)| line.contains(text)).map_or("kernel oops", |(_, title)| title)
}

fn lockdep(line: &str) -> String {
    let what = ["WARNING: ", "INFO: ", "[ BUG: ", "BUG: "].iter().find_map(|word| line.strip_prefix(word));
    let what = what.unwrap_or(line).trim_end_matches(" ]").trim_end_matches(['!', '.']);
    match what {
        _ if what.starts_with("possible ") => "possible deadlock".to_owned(),
        _ if what.contains("IRQ-unsafe") => "possible deadlock".to_owned(),
        _ if what.starts_with("inconsistent lock state") => "inconsistent lock state".to_owned(),
        _ => format!("WARNING: {}", what.trim_end_matches(" detected")),
    }
}
