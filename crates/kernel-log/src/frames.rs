//! Places in code, tasks and CPUs, as the kernel prints them.

/// The longest name that is kept, in bytes; the kernel's own limit.
const MAX_NAME: usize = 512;
/// The longest name of a task: TASK_COMM_LEN, and what the kernel adds for its workers.
const MAX_TASK: usize = 64;

/// A place in the kernel's code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// Name of the function, `?` where the kernel knows none.
    pub function: String,
    /// Offset in the function, in bytes.
    pub offset: u64,
    /// The module of the function; `None` for the kernel itself.
    pub module: Option<String>,
}

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Its name, empty where the line has none.
    pub name: String,
    /// Its number.
    pub pid: u32,
}

impl std::fmt::Display for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.name, self.pid)
    }
}

/// A frame of a call trace: `f+0x12/0x30 [module]`. `None` for other lines, and for leftovers on the stack, which
/// begin with a question mark.
pub(crate) fn frame(line: &str) -> Option<Place> {
    let (place, rest) = place(line.trim_start())?;
    rest.trim().is_empty().then_some(place)
}

/// Whether a line is one of a trace without being a frame that counts: a leftover on the stack.
pub(crate) fn is_leftover(line: &str) -> bool {
    line.trim_start().starts_with("? ")
}

/// The place at the beginning of a text, and what follows it. A module may have its build's number behind its
/// name.
pub(crate) fn place(text: &str) -> Option<(Place, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "_.$+/".contains(c))).unwrap_or(text.len());
    let (code, rest) = text.split_at(end);
    let (function, numbers) = code.rsplit_once("+0x")?;
    let (offset, size) = numbers.split_once("/0x")?;
    let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let (offset, _) = (number(offset)?, number(size)?);
    if !is_name(function) {
        return None;
    }
    let module = rest.strip_prefix(" [").and_then(|rest| rest.split_once(']'));
    let named = module.and_then(|(inside, rest)| {
        let name = inside.split(' ').next().unwrap_or_default();
        is_name(name).then_some((name, rest))
    });
    let (module, rest) = named.map_or((None, rest), |(name, rest)| (Some(name.to_owned()), rest));
    Some((Place { function: function.to_owned(), offset, module }, rest))
}

fn is_name(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"_.$-".contains(&byte);
    !text.is_empty() && text.len() <= MAX_NAME && text.bytes().all(good)
}

/// The first place anywhere in a line.
pub(crate) fn place_in(line: &str) -> Option<Place> {
    line.split_inclusive(' ')
        .scan(0, |at, word| {
            let start = *at;
            *at += word.len();
            Some(start)
        })
        .find_map(|start| Some(place(&line[start..])?.0))
}

/// The instruction in a line with the kernel's registers: `RIP: 0010:f+0x12/0x30 [module]`. A jump to nowhere
/// has an address alone, which has no name.
pub(crate) fn instruction(line: &str) -> Option<Place> {
    let code = line.trim_start().strip_prefix("RIP: 0010:")?;
    match place(code) {
        Some((place, _)) => Some(place),
        None => code.starts_with("0x").then(|| Place { function: "?".to_owned(), ..Place::default() }),
    }
}

/// CPU and task of a line such as `CPU: 1 PID: 88 Comm: insmod Tainted: G`, `CPU: 1 UID: 0 PID: 88 Comm: …`,
/// or `WARNING: CPU: 1 PID: 88 at …`.
pub(crate) fn cpu_and_task(line: &str) -> Option<(u32, Task)> {
    let (_, rest) = line.split_once("CPU: ")?;
    let (cpu, rest) = rest.split_once(' ')?;
    let rest = match rest.strip_prefix("UID: ") {
        Some(rest) => rest.split_once(' ')?.1,
        None => rest,
    };
    let (pid, rest) = rest.strip_prefix("PID: ")?.split_once(' ')?;
    let name = rest.strip_prefix("Comm: ").map_or("", |rest| {
        let end = [" Tainted:", " Not tainted"].iter().filter_map(|word| rest.find(word)).min();
        &rest[..end.unwrap_or(rest.len())]
    });
    Some((cpu.parse().ok()?, task(name, pid)?))
}

/// CPU and task of `…, CPU#1: insmod/88` and `… - CPU#1 stuck for 26s! [insmod:88]`.
pub(crate) fn cpu_hash(line: &str) -> (Option<u32>, Option<Task>) {
    let Some((_, rest)) = line.split_once("CPU#") else { return (None, None) };
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let cpu = rest[..digits].parse().ok();
    let task = match rest[digits..].strip_prefix(": ") {
        Some(rest) => rest.rsplit_once('/').and_then(|(name, pid)| task(name, pid)),
        None => rest.rsplit_once(" [").and_then(|(_, rest)| named(rest.strip_suffix(']')?)),
    };
    (cpu, task)
}

/// The task of `BUG: scheduling while atomic: insmod/88/0x00000002`.
pub(crate) fn atomic_task(line: &str) -> Option<Task> {
    let (_, rest) = line.split_once("while atomic: ")?;
    let (rest, _) = rest.rsplit_once('/')?;
    let (name, pid) = rest.rsplit_once('/')?;
    task(name, pid)
}

/// The task of `INFO: task insmod:88 blocked for more than 120 seconds.`
pub(crate) fn blocked_task(line: &str) -> Option<Task> {
    named(line.strip_prefix("INFO: task ")?.split_once(" blocked ")?.0)
}

/// A task as `NAME:PID`.
fn named(text: &str) -> Option<Task> {
    let (name, pid) = text.rsplit_once(':')?;
    task(name, pid)
}

fn task(name: &str, pid: &str) -> Option<Task> {
    Some(Task { name: name.chars().take(MAX_TASK).collect(), pid: pid.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(function: &str, offset: u64, module: Option<&str>) -> Place {
        Place { function: function.to_owned(), offset, module: module.map(str::to_owned) }
    }

    fn by(name: &str, pid: u32) -> Task {
        Task { name: name.to_owned(), pid }
    }

    #[test]
    fn frames_have_function_offset_and_module() {
        assert_eq!(frame(" f.isra.0+0x1a/0x30 [drv]"), Some(at("f.isra.0", 0x1a, Some("drv"))));
        assert_eq!(frame("  __x64_sys+0x0/0x1"), Some(at("__x64_sys", 0, None)));
        assert_eq!(frame(" f+0x1/0x2 [drv 0123abcd]"), Some(at("f", 1, Some("drv"))));
        for other in
            ["", " ? f+0x1/0x2", " f+1/2", " f+0x1/0x2 more", "+0x1/0x2", " f+0xg/0x1", " f+0x1", " [x]"]
        {
            assert_eq!(frame(other), None, "{other}");
        }
        assert!(is_leftover(" ? f+0x1/0x2"));
        assert_eq!(place_in("KFENCE: read in f+0x1/0x2 [d]:"), Some(at("f", 1, Some("d"))));
        assert_eq!(place_in("ä f+0x1/0x2, CPU#1: x/1"), Some(at("f", 1, None)));
        assert_eq!(instruction("RIP: 0010:f+0x1/0x2 [d]"), Some(at("f", 1, Some("d"))));
        assert_eq!(instruction("RIP: 0010:0xffffffffc0000000"), Some(at("?", 0, None)));
        assert_eq!(instruction("RIP: 0033:0x7f"), None);
    }

    #[test]
    fn tasks_and_cpus_are_read() {
        let line = "CPU: 1 PID: 88 Comm: kworker/1:0 Tainted: G           OE      6.1.0 #1 Debian";
        assert_eq!(cpu_and_task(line), Some((1, by("kworker/1:0", 88))));
        let line = "CPU: 0 UID: 0 PID: 7 Comm: a b Not tainted 6.12";
        assert_eq!(cpu_and_task(line), Some((0, by("a b", 7))));
        assert_eq!(cpu_and_task("WARNING: CPU: 3 PID: 0 at a.c:1 f+0x1/0x2"), Some((3, by("", 0))));
        assert_eq!(cpu_and_task("CPU: x"), None);
        assert_eq!(cpu_hash("at f+0x1/0x2, CPU#1: insmod/88"), (Some(1), Some(by("insmod", 88))));
        let line = "watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [kworker/0:1:88]";
        assert_eq!(cpu_hash(line), (Some(0), Some(by("kworker/0:1", 88))));
        assert_eq!(cpu_hash("CPU#"), (None, None));
        assert_eq!(atomic_task("BUG: scheduling while atomic: zoo/88/0x2"), Some(by("zoo", 88)));
        assert_eq!(blocked_task("INFO: task a:b:88 blocked for more than"), Some(by("a:b", 88)));
    }
}
