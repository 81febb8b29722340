//! How long a process waited for a processor: a guest that gets none says nothing, and is not hung.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The time between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// The silence of a guest, without the time for which it waited for a processor.
pub(super) struct Silence {
    process: u32,
    since: Instant,
    looked: Instant,
    /// The whole wait at the last look.
    wait: Duration,
    /// The part of it since the last sign of life.
    waited: Duration,
}

impl Silence {
    pub(super) fn new(process: u32) -> Silence {
        let now = Instant::now();
        Silence { process, since: now, looked: now, wait: wait(process), waited: Duration::ZERO }
    }

    /// The guest has given a sign of life.
    pub(super) fn broken(&mut self) {
        (self.since, self.waited) = (Instant::now(), Duration::ZERO);
    }

    /// How long the silence has lasted.
    pub(super) fn lasts(&mut self) -> Duration {
        if self.looked.elapsed() >= LOOK {
            let wait = wait(self.process);
            self.waited += wait.saturating_sub(self.wait);
            (self.looked, self.wait) = (Instant::now(), wait);
        }
        self.since.elapsed().saturating_sub(self.waited)
    }
}

/// How long the thread of a process that waited most has waited for a processor, which is the second number of `schedstat`
/// (Documentation/scheduler/sched-stats.rst). Zero where the kernel does not say.
fn wait(process: u32) -> Duration {
    let threads = fs::read_dir(PathBuf::from(format!("/proc/{process}/task")));
    let of = |thread: PathBuf| {
        let text = fs::read_to_string(thread.join("schedstat")).ok()?;
        text.split_whitespace().nth(1)?.parse().ok()
    };
    let waits = threads.into_iter().flatten().flatten().filter_map(|thread| of(thread.path()));
    Duration::from_nanos(waits.max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn what_waits_for_a_processor_is_not_silent() {
        let spin = |_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        // More than there are processors, so that each waits at times.
        let mut spinning: Vec<_> =
            (0..4 * std::thread::available_parallelism().unwrap().get()).map(spin).collect();
        let mut silence = Silence::new(spinning[0].id());
        std::thread::sleep(2 * LOOK);
        let lasted = silence.lasts();
        silence.broken();
        let broken = silence.lasts();
        for child in &mut spinning {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(broken < LOOK, "{broken:?}");
        assert!(fs::read("/proc/self/schedstat").is_err() || lasted < 2 * LOOK, "{lasted:?}");
        let mut idle = Command::new("sleep").arg("60").spawn().unwrap();
        let mut silence = Silence::new(idle.id());
        std::thread::sleep(LOOK);
        assert!(silence.lasts() > LOOK / 2);
        idle.kill().unwrap();
        idle.wait().unwrap();
    }
}
