//! What a line says: whether it begins a splat, and of which sort.

/// The sort of a splat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sign {
    /// `WARN_ON` and its variants.
    Warning,
    /// `BUG_ON`, and other lines that begin with `BUG:`.
    Bug,
    /// A fault of the processor in the kernel.
    Oops,
    /// A panic that no other splat explains.
    Panic,
    /// A reference count that overflowed or was used after it had become zero.
    Refcount,
    /// Links of a list that do not fit each other.
    List,
    /// Metadata of the slab allocator or of a page that are wrong.
    Memory,
    /// A report of UBSAN.
    Undefined,
    /// A report of KFENCE.
    Kfence,
    /// A report of KASAN.
    Kasan,
    /// A report of KMSAN.
    Kmsan,
    /// A report of KCSAN.
    Kcsan,
    /// The kernel's lock validator.
    Lockdep,
    /// A call that may sleep where that is not allowed.
    Atomic,
    /// A thread that waits for long.
    HungTask,
    /// A CPU that RCU waits for.
    RcuStall,
    /// A CPU that does not schedule, or has its interrupts off, for long.
    Lockup,
    /// A network device that does not send.
    TxTimeout,
    /// The kernel's own check of DMA.
    DmaDebug,
    /// A report of kmemleak.
    Leak,
    /// An interrupt that no handler took.
    Interrupt,
}

impl Sign {
    /// The name of the finding's kind, as in [`guardrail_finding::kinds`].
    pub fn kind(self) -> &'static str {
        match self {
            Sign::Warning => "kernel-warning",
            Sign::Bug => "kernel-bug",
            Sign::Oops => "kernel-oops",
            Sign::Panic => "kernel-panic",
            Sign::Refcount => "refcount",
            Sign::List => "list-corruption",
            Sign::Memory => "memory-corruption",
            Sign::Undefined => "undefined-behavior",
            Sign::Kfence => "kfence",
            Sign::Kasan => "kasan",
            Sign::Kmsan => "kmsan",
            Sign::Kcsan => "kcsan",
            Sign::Lockdep => "lockdep",
            Sign::Atomic => "sleep-in-atomic",
            Sign::HungTask => "hung-task",
            Sign::RcuStall => "rcu-stall",
            Sign::Lockup => "lockup",
            Sign::TxTimeout => "transmit-timeout",
            Sign::DmaDebug => "dma-debug",
            Sign::Leak => "kmemleak",
            Sign::Interrupt => "unhandled-interrupt",
        }
    }

    /// Whether the kernel's data are wrong or its code cannot continue. That is an error even where no function
    /// of the driver is in sight, because such damage appears far from its cause.
    pub fn is_grave(self) -> bool {
        matches!(
            self,
            Sign::Bug
                | Sign::Oops
                | Sign::Panic
                | Sign::Refcount
                | Sign::List
                | Sign::Memory
                | Sign::Kfence
                | Sign::Kasan
        )
    }

    /// Whether the place in the function is where a CPU or thread happened to be.
    pub fn is_timed(self) -> bool {
        matches!(self, Sign::HungTask | Sign::RcuStall | Sign::Lockup | Sign::TxTimeout)
    }
}

/// Beginnings of lines that begin a splat. The first that fits counts.
const BEGINNINGS: &[(&str, Sign)] = &[
    ("kernel BUG at ", Sign::Bug),
    ("BUG: KASAN: ", Sign::Kasan),
    ("BUG: KFENCE: ", Sign::Kfence),
    ("BUG: KMSAN: ", Sign::Kmsan),
    ("BUG: KCSAN: ", Sign::Kcsan),
    ("BUG: kernel NULL pointer dereference", Sign::Oops),
    ("BUG: unable to handle ", Sign::Oops),
    ("BUG: stack guard page was hit", Sign::Oops),
    ("BUG: IRQ stack guard page was hit", Sign::Oops),
    ("BUG: TASK stack guard page was hit", Sign::Oops),
    ("BUG: sleeping function called from invalid context", Sign::Atomic),
    ("BUG: scheduling while atomic", Sign::Atomic),
    ("BUG: workqueue leaked ", Sign::Atomic),
    ("BUG: soft lockup", Sign::Lockup),
    ("BUG: workqueue lockup", Sign::Lockup),
    ("BUG: Bad page ", Sign::Memory),
    ("BUG: Bad rss-counter", Sign::Memory),
    // Limits of lockdep itself.
    ("BUG: Invalid wait context", Sign::Lockdep),
    ("BUG: held lock freed", Sign::Lockdep),
    ("BUG: ", Sign::Bug),
    ("[ BUG: ", Sign::Lockdep),
    // The slab allocator's own checks: `BUG kmalloc-64 (Not tainted): Redzone overwritten`.
    ("BUG kmalloc-", Sign::Memory),
    ("Oops: ", Sign::Oops),
    ("general protection fault", Sign::Oops),
    ("divide error: ", Sign::Oops),
    ("invalid opcode: ", Sign::Oops),
    ("stack segment: ", Sign::Oops),
    ("double fault: ", Sign::Oops),
    ("int3: ", Sign::Oops),
    ("Kernel panic - not syncing", Sign::Panic),
    ("refcount_t: ", Sign::Refcount),
    ("list_add corruption", Sign::List),
    ("list_add double add", Sign::List),
    ("list_del corruption", Sign::List),
    ("UBSAN: ", Sign::Undefined),
    ("WARNING: possible circular locking", Sign::Lockdep),
    ("WARNING: possible recursive locking", Sign::Lockdep),
    ("WARNING: possible irq lock inversion", Sign::Lockdep),
    ("WARNING: inconsistent lock state", Sign::Lockdep),
    ("WARNING: suspicious RCU usage", Sign::Lockdep),
    ("WARNING: bad unlock balance", Sign::Lockdep),
    ("WARNING: bad contention detected", Sign::Lockdep),
    ("WARNING: held lock freed", Sign::Lockdep),
    ("WARNING: Nested lock was not taken", Sign::Lockdep),
    ("WARNING: lock held when returning to user space", Sign::Lockdep),
    ("WARNING: HARDIRQ-safe -> HARDIRQ-unsafe", Sign::Lockdep),
    ("WARNING: SOFTIRQ-safe -> SOFTIRQ-unsafe", Sign::Lockdep),
    ("WARNING: kernel stack ", Sign::Bug),
    ("INFO: possible circular locking", Sign::Lockdep),
    ("INFO: possible recursive locking", Sign::Lockdep),
    ("INFO: possible irq lock inversion", Sign::Lockdep),
    ("INFO: inconsistent lock state", Sign::Lockdep),
    ("INFO: suspicious RCU usage", Sign::Lockdep),
    ("INFO: trying to register non-static key", Sign::Lockdep),
    ("watchdog: BUG: soft lockup", Sign::Lockup),
    ("watchdog: CPU", Sign::Lockup),
    ("Watchdog detected hard LOCKUP", Sign::Lockup),
    ("NMI watchdog: Watchdog detected hard LOCKUP", Sign::Lockup),
    ("rcu: INFO: rcu_", Sign::RcuStall),
    ("INFO: rcu_", Sign::RcuStall),
    ("NETDEV WATCHDOG: ", Sign::TxTimeout),
    ("kmemleak: ", Sign::Leak),
];

/// The sort of the splat that a line begins.
pub(crate) fn begins(line: &str) -> Option<Sign> {
    if let Some((_, sign)) = BEGINNINGS.iter().find(|(text, _)| line.starts_with(text)) {
        let counts = match sign {
            Sign::Leak => line.contains("new suspected memory leak"),
            Sign::RcuStall => line.contains("detected"),
            // `BUG: MAX_LOCKDEP_KEYS too low!` is a limit of lockdep itself.
            Sign::Bug => !line.starts_with("BUG: MAX_"),
            Sign::Lockup => line.to_ascii_lowercase().contains("lockup"),
            _ => true,
        };
        return counts.then_some(*sign);
    }
    if warns(line) {
        return Some(Sign::Warning);
    }
    if line.starts_with("INFO: task ") && line.contains(" blocked ") {
        return Some(Sign::HungTask);
    }
    if line.starts_with("BUG ") && line.contains("ainted") && line.contains("): ") {
        return Some(Sign::Memory);
    }
    // `e1000 0000:00:03.0 eth0: NETDEV WATCHDOG: CPU: 0: transmit queue 0 timed out 5123 ms`
    if line.contains(": NETDEV WATCHDOG: ") {
        return Some(Sign::TxTimeout);
    }
    (line.starts_with("irq ") && line.contains(": nobody cared")).then_some(Sign::Interrupt)
}

/// Whether a line is what `WARN` prints: `WARNING: CPU: 1 PID: 88 at FILE:LINE f+0x1/0x2`, or from 6.19 on
/// `WARNING: FILE:LINE at f+0x1/0x2, CPU#1: insmod/88`.
fn warns(line: &str) -> bool {
    line.strip_prefix("WARNING: ").is_some_and(|rest| {
        rest.starts_with("CPU: ")
            || rest.split_once(" at ").is_some_and(|(place, _)| {
                place.rsplit_once(':').is_some_and(|(file, number)| {
                    !file.contains(' ')
                        && !number.is_empty()
                        && number.bytes().all(|byte| byte.is_ascii_digit())
                })
            })
    })
}

/// The sort of a `WARN`, by the text that it prints.
pub(crate) fn of_text(text: &str) -> Option<Sign> {
    match text.starts_with("DMA-API: ") {
        true => Some(Sign::DmaDebug),
        false => begins(text).filter(|sign| matches!(sign, Sign::Refcount | Sign::List | Sign::TxTimeout)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_finding::kinds;

    #[test]
    fn lines_begin_splats() {
        for (line, sign) in [
            ("WARNING: CPU: 1 PID: 88 at a.c:1 f+0x1/0x2 [x]", Sign::Warning),
            ("WARNING: lib/refcount.c:28 at f+0x1/0x2, CPU#1: insmod/88", Sign::Warning),
            ("kernel BUG at lib/list_debug.c:59!", Sign::Bug),
            ("BUG: something else", Sign::Bug),
            ("BUG: unable to handle page fault for address: ffff", Sign::Oops),
            ("INFO: task modprobe:88 blocked for more than 120 seconds.", Sign::HungTask),
            ("rcu: INFO: rcu_preempt self-detected stall on CPU", Sign::RcuStall),
            ("watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [insmod:88]", Sign::Lockup),
            ("e1000 0000:00:03.0 eth0: NETDEV WATCHDOG: CPU: 0: transmit queue 0 timed out", Sign::TxTimeout),
            ("kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)", Sign::Leak),
            ("irq 11: nobody cared (try booting with the \"irqpoll\" option)", Sign::Interrupt),
            ("BUG zoo_requests (Tainted: G           OE     ): Poison overwritten", Sign::Memory),
            ("WARNING: possible circular locking dependency detected", Sign::Lockdep),
        ] {
            assert_eq!(begins(line), Some(sign), "{line}");
        }
        assert_eq!(of_text("DMA-API: e1000 0000:00:03.0: device driver frees"), Some(Sign::DmaDebug));
        assert_eq!(of_text("BUG: x"), None);
    }

    #[test]
    fn harmless_lines_begin_none() {
        for line in [
            "",
            "e1000: BUG: in the text of a driver",
            "WARNING: the firmware is old",
            "WARNING: x y:3 at z",
            "traps: sh[88] general protection fault ip:1 sp:2 error:0",
            "DMA-API: preallocated 65536 debug entries",
            "kmemleak: Kernel memory leak detector initialized",
            "rcu: INFO: rcu_sched kthread starved",
            "INFO: task x",
            "INFO: NMI handler (f) took too long to run: 1.1 msecs",
            "BUG: MAX_LOCKDEP_KEYS too low!",
            "watchdog: CPU 1 is back",
            "Warning: x",
        ] {
            assert_eq!(begins(line), None, "{line}");
        }
    }

    #[test]
    fn every_kind_has_its_help() {
        for (_, sign) in BEGINNINGS {
            assert!(kinds::find(sign.kind()).is_some(), "{}", sign.kind());
        }
        for sign in [Sign::Warning, Sign::HungTask, Sign::DmaDebug, Sign::Interrupt] {
            assert!(kinds::find(sign.kind()).is_some(), "{}", sign.kind());
        }
    }
}
