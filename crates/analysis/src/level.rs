//! Levels of contexts.

/// Level of a context: an interrupt that runs on a task's time is not the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// The task itself: system calls and kernel threads.
    Process,
    /// Softirq handlers.
    Softirq,
    /// Hardware interrupt handlers.
    Hardirq,
    /// Non-maskable interrupts.
    Nmi,
}

impl Level {
    /// The level that a `preempt_count` stands for. In the softirq count, bit 8 says that a softirq runs; the
    /// other bits say that softirqs are disabled.
    pub fn of(preempt_count: u64) -> Level {
        if preempt_count >> 20 & 0xf != 0 {
            Level::Nmi
        } else if preempt_count >> 16 & 0xf != 0 {
            Level::Hardirq
        } else if preempt_count >> 8 & 1 != 0 {
            Level::Softirq
        } else {
            Level::Process
        }
    }

    /// The level's name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Level::Process => "process",
            Level::Softirq => "softirq",
            Level::Hardirq => "hardirq",
            Level::Nmi => "nmi",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disabled_softirqs_are_no_softirq() {
        for (count, level) in [
            (0, Level::Process),
            (1, Level::Process),
            (0x200, Level::Process),
            (0x100, Level::Softirq),
            (0x301, Level::Softirq),
            (0x1_0100, Level::Hardirq),
            (0x10_0000, Level::Nmi),
        ] {
            assert_eq!(Level::of(count), level, "{count:#x}");
        }
    }
}
