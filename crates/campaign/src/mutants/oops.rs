//! Finds crashes in the output of a kernel's console.

use guardrail_guard::violations;
use guardrail_vm::without_time;
use std::collections::HashSet;

/// Texts that begin the report of an oops.
const OOPS: [&str; 11] = [
    "BUG: kernel NULL pointer dereference",
    "BUG: unable to handle",
    "BUG: stack guard page was hit",
    "BUG: TASK stack guard page was hit",
    "general protection fault",
    "invalid opcode:",
    "kernel BUG at ",
    "divide error:",
    "stack segment:",
    "double fault:",
    "int3:",
];
/// Texts that report a processor which is stuck.
const STUCK: [&str; 3] = ["BUG: soft lockup", "softlockup: hung tasks", "hard LOCKUP"];
/// Texts with which the kernel reports that its own data are corrupt.
const DAMAGE: [&str; 11] = [
    "BUG: ",
    "list_add corruption",
    "list_del corruption",
    "refcount_t: ",
    "double free",
    "Freepointer corrupt",
    "Object already free",
    "Bad page state",
    "Bad rss-counter",
    "corrupted stack end",
    "bad: scheduling",
];
/// The line that init writes to the console before it loads the driver: messages of the boot are not the
/// driver's doing.
const BEGIN: &str = "guardrail: the driver is loaded";
/// The prefix of the runtime's line after it ended an entry of a guarded driver in which the processor
/// faulted.
const FAULT: &str = "guardrail: fault: ";
/// The most lines of one oops.
const MAX_OOPS: usize = 80;
/// The fewest hexadecimal digits with which the kernel prints an address or register.
const ADDRESS: usize = 8;
/// The most characters of a line that are kept.
const MAX_LINE: usize = 200;

/// A crash of a guest's kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// The number of its first line.
    pub line: usize,
    /// The text of that line.
    pub why: String,
    /// True where a processor was stuck.
    pub stuck: bool,
    /// The faulting instruction, in the kernel's notation; `None` where it is unknown.
    pub at: Option<String>,
    /// The module that contains it; `None` for the kernel's image.
    pub module: Option<String>,
}

/// A console without control characters and times.
pub struct Console {
    lines: Vec<String>,
}

impl Console {
    /// Reads the bytes that a guest wrote.
    pub fn new(bytes: &[u8]) -> Console {
        let text = String::from_utf8_lossy(bytes);
        let line = |line: &str| {
            let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            without_time(line.trim()).chars().take(MAX_LINE).collect::<String>()
        };
        let mut lines: Vec<String> =
            text.lines().map(line).filter(|line: &String| line.contains(char::is_alphabetic)).collect();
        if let Some(begin) = lines.iter().position(|line| line == BEGIN) {
            lines.drain(..=begin);
        }
        Console { lines }
    }

    /// The first crash that the console reports.
    pub fn crash(&self) -> Option<Crash> {
        let has = |line: &str, words: &[&str]| words.iter().any(|word| line.contains(word));
        let panic = |line: &str| line.contains("Kernel panic - not syncing");
        let first =
            self.lines.iter().position(|line| has(line, &OOPS) || has(line, &STUCK) || panic(line))?;
        let why = self.lines[first].clone();
        let stuck = has(&why, &STUCK);
        // A panic for another reason, such as lack of memory, has no instruction, and a trace behind it may
        // name others. A panic because a function found its own stack frame overwritten names that function.
        let (at, module) = match panic(&why) {
            true => why.split_once("Kernel stack is corrupted in: ").and_then(|(_, at)| place(at)).unzip(),
            false => self.lines[first..].iter().find_map(|line| instruction(line)).unzip(),
        };
        Some(Crash { line: first, why, stuck, at, module: module.flatten() })
    }

    /// The console without those oopses that only ended an entry of a guarded driver, because they did no
    /// harm.
    pub fn without_ended_faults(&self) -> Console {
        let mut lines: Vec<String> = Vec::new();
        for line in &self.lines {
            if line.contains(FAULT) {
                let begin = lines.len().saturating_sub(MAX_OOPS);
                let oops =
                    lines[begin..].iter().rposition(|line| OOPS.iter().any(|word| line.contains(word)));
                if let Some(oops) = oops {
                    lines.truncate(begin + oops);
                }
            }
            lines.push(line.clone());
        }
        Console { lines }
    }

    /// True where each domain that was killed was loaded again, or was unloaded already when its turn
    /// arrived.
    pub fn recovered(&self) -> bool {
        let count = |word: &str| {
            let says = |line: &&String| line.contains("guardrail: ") && line.contains(word);
            self.lines.iter().filter(says).count()
        };
        let killed = count(") is killed: ");
        killed > 0 && count(" is done, ") + count(" failed: it has no module any more") >= killed
    }

    /// The lines that are not in `usual`, whatever their numbers are. Lines of a trace with a question mark
    /// are leftovers on the stack, which differ each time.
    pub fn unusual<'a>(&'a self, usual: &'a HashSet<String>) -> impl Iterator<Item = &'a str> {
        let frame = |line: &str| line.contains("[ cut here ]") || line.trim_start().starts_with("? ");
        self.lines
            .iter()
            .filter(move |line| !usual.contains(&shape(line)) && !frame(line))
            .map(String::as_str)
    }

    /// The first unusual line that reports damage outside of any module.
    pub fn damage<'a>(&'a self, usual: &'a HashSet<String>) -> Option<&'a str> {
        self.unusual(usual).find(|line| DAMAGE.iter().any(|word| line.contains(word)))
    }

    /// The line with the first violation or fault of a guarded driver that was ended, unless something else
    /// went wrong before.
    pub fn violation_before_harm(&self, usual: &HashSet<String>, end: Option<&Crash>) -> Option<&str> {
        let at = self.lines.iter().position(|line| violations::is_violation(line) || line.contains(FAULT))?;
        let before = &self.lines[..at];
        let harm =
            |line: &&String| !usual.contains(&shape(line)) && DAMAGE.iter().any(|word| line.contains(word));
        let sound = end.is_none_or(|end| at < end.line) && !before.iter().any(|line| harm(&line));
        sound.then_some(self.lines[at].as_str())
    }

    /// All lines as one text.
    pub fn text(&self) -> String {
        self.lines.join("\n")
    }

    /// The shapes of all lines.
    pub fn shapes(&self) -> HashSet<String> {
        self.lines.iter().map(|line| shape(line)).collect()
    }
}

/// A line without its numbers and without the values of registers and addresses.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    for word in line.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let text = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let is_address = text.len() >= ADDRESS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let word = if is_address { word.replace(text, "#") } else { word.to_owned() };
        for c in word.chars() {
            match c.is_ascii_digit() {
                true if shape.ends_with('#') => {}
                true => shape.push('#'),
                false => shape.push(c),
            }
        }
    }
    shape
}

/// The instruction in a line with the kernel's registers, and its module: `RIP: 0010:e1000_clean+0x45/0x100
/// [e1000]`.
fn instruction(line: &str) -> Option<(String, Option<String>)> {
    place(line.split_once("RIP: 0010:")?.1)
}

/// A place in the kernel's code, and its module.
fn place(place: &str) -> Option<(String, Option<String>)> {
    let mut words = place.split_whitespace();
    let at = words.next()?.to_owned();
    let module = words.next().and_then(|word| word.strip_prefix('[')?.strip_suffix(']').map(str::to_owned));
    Some((at, module))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crash(text: &str) -> Option<Crash> {
        Console::new(text.as_bytes()).crash()
    }

    #[test]
    fn the_instruction_and_its_module_are_read() {
        let text = "[    3.5] BUG: kernel NULL pointer dereference, address: 0000000000000008\r\n\
                    [    3.5] RIP: 0010:x_init+0x5/0x10 [x]\n\
                    [    3.5] RIP: 0033:0x4711\n\
                    [    3.6] Kernel panic - not syncing: Fatal exception\n";
        let crash = crash(text).unwrap();
        assert_eq!(crash.why, "BUG: kernel NULL pointer dereference, address: 0000000000000008");
        assert_eq!((crash.at.as_deref(), crash.module.as_deref()), (Some("x_init+0x5/0x10"), Some("x")));
        assert!(!crash.stuck);
        let outside = super::tests::crash("kernel BUG at mm/slub.c:1!\nRIP: 0010:kfree+0x1/0x2\n").unwrap();
        assert_eq!((outside.at.as_deref(), outside.module), (Some("kfree+0x1/0x2"), None));
    }

    #[test]
    fn a_processor_that_is_stuck_and_a_panic_of_itself_are_distinguished() {
        let text = "watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [ip:88]\nRIP: 0010:f+0x1/0x2 [x]\n";
        assert!(crash(text).unwrap().stuck);
        let text = "Kernel panic - not syncing: System is deadlocked on memory\nRIP: 0010:f+0x1/0x2 [x]\n";
        assert_eq!(crash(text).unwrap().at, None);
        let text =
            "Kernel panic - not syncing: stack-protector: Kernel stack is corrupted in: f+0x6fc/0x6fc [x]\n";
        let own = crash(text).unwrap();
        assert_eq!((own.at.as_deref(), own.module.as_deref()), (Some("f+0x6fc/0x6fc"), Some("x")));
        assert_eq!(crash("BUG: scheduling while atomic: ip/88/0x2\n"), None);
    }

    #[test]
    fn usual_lines_are_known_by_their_shape() {
        assert_eq!(shape("RSP: 0018:ffffc900003abaf0 x"), shape("RSP: 0018:ffffc9000045fbf0 x"));
        assert_ne!(shape("facade"), shape("decade"));
        let usual = Console::new(b"[ 1.0] e1000: took 15 ms\n").shapes();
        let console = Console::new(b"[ 2.0] e1000: took 7 ms\n[ 2.1] BUG: Bad page state in process sh\n");
        assert_eq!(console.unusual(&usual).count(), 1);
        assert_eq!(console.damage(&usual), Some("BUG: Bad page state in process sh"));
    }

    #[test]
    fn what_was_left_on_the_stack_is_not_unusual() {
        let console = Console::new(b"[ 2.0]  ? xas_find+0x17/0x1b0\n[ 2.1]  xas_load+0x9/0xa0\n");
        assert_eq!(console.unusual(&HashSet::new()).collect::<Vec<_>>(), ["xas_load+0x9/0xa0"]);
    }

    #[test]
    fn what_is_said_before_the_driver_is_loaded_is_not_read() {
        let text = b"[ 0.1] BUG: boot\n[ 1.0] guardrail: the driver is loaded\n[ 1.1] ---[ cut here ]---\n[ 1.1] x\n";
        let console = Console::new(text);
        assert_eq!(console.unusual(&HashSet::new()).collect::<Vec<_>>(), ["x"]);
    }

    #[test]
    fn a_violation_counts_where_nothing_went_wrong_before() {
        let violation =
            "guardrail: violation: write of 8 bytes at 1 by f+0x1/0x2 [x]: domain 1 holds read, needs write";
        let bug = "kernel BUG at report.c:1!\nRIP: 0010:tell+0x1/0x2 [guardrail]";
        let before = |text: &str| {
            let console = Console::new(text.as_bytes());
            console.violation_before_harm(&HashSet::new(), console.crash().as_ref()).is_some()
        };
        assert!(before(&format!("{violation}\n{bug}\n")));
        assert!(before(violation));
        assert!(!before(&format!("{bug}\n{violation}\n")));
        assert!(!before(&format!("list_add corruption\n{violation}\n{bug}\n")));
        assert!(!before(bug));
    }

    #[test]
    fn a_fault_that_was_ended_is_no_crash() {
        let oops = "BUG: unable to handle page fault for address: 1\nRIP: 0010:f+0x1/0x2 [x]\n";
        let ended = "guardrail: fault: access to a bad address by f+0x1/0x2 [x]: domain 1\n";
        let console = |text: &str| Console::new(text.as_bytes()).without_ended_faults();
        assert!(console(oops).crash().is_some());
        let violation = console(&format!("{oops}{ended}"));
        assert_eq!(violation.crash(), None);
        assert!(violation.violation_before_harm(&HashSet::new(), None).is_some());
        assert!(console(&format!("{oops}{ended}{oops}")).crash().is_some());
    }

    #[test]
    fn a_recovery_is_over_for_each_domain_that_was_killed() {
        let killed = "guardrail: domain 1 (x) is killed: write\n";
        let done = "guardrail: recovery of domain 1 is done, 5 ms after it was killed\n";
        let recovered = |text: &str| Console::new(text.as_bytes()).recovered();
        assert!(recovered(&format!("{killed}{done}")));
        assert!(!recovered(&format!("{killed}{done}{killed}")));
        assert!(!recovered(&format!(
            "{killed}guardrail: recovery of domain 1 failed: threads are still inside\n"
        )));
        assert!(recovered(&format!(
            "{killed}guardrail: recovery of domain 1 failed: it has no module any more\n"
        )));
        assert!(!recovered(done));
    }

    #[test]
    fn any_console_is_read() {
        assert_eq!(crash(""), None);
        let all: Vec<u8> = (0..=255).cycle().take(5000).collect();
        assert_eq!(Console::new(&all).crash(), None);
        assert_eq!(crash("int3: \nRIP: 0010:").unwrap().at, None);
    }
}
