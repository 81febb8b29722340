//! The lines of a log become splats, one line at a time.

use super::{MAX_SPLATS, Object, Splat, Stack};
use crate::frames::{self, Place};
use crate::signs::{self, Sign};

/// The most lines of a splat.
const MAX_LINES: usize = 400;
/// The most places of a stack that are kept.
const MAX_FRAMES: usize = 64;
/// The most lines of explanation that are kept.
const MAX_DETAILS: usize = 24;
/// The most further stacks of a splat.
const MAX_STACKS: usize = 4;

/// What the kernel prints before the text of a `WARN` or `BUG`.
const CUT_HERE: &str = "------------[ cut here ]------------";

/// Beginnings of the second line of an oops.
const HEADERS: [&str; 7] = [
    "Oops: ",
    "invalid opcode: ",
    "general protection fault",
    "divide error: ",
    "stack segment: ",
    "double fault: ",
    "int3: ",
];

/// Reasons of a panic that only follow from the splat before.
const CONSEQUENCES: [&str; 8] = [
    "Fatal exception",
    "panic_on_warn",
    "softlockup: hung tasks",
    "hung_task: blocked tasks",
    "RCU Stall",
    "Hard LOCKUP",
    "kfence",
    "KASAN",
];

/// Where in a splat the reader is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    /// Before the call trace.
    #[default]
    Head,
    /// In the call trace. True between `<TASK>` and `</TASK>`, where lines of others do not end it.
    Trace(bool),
    /// In the last of the further stacks.
    Stack,
    /// Behind a stack.
    Behind,
}

/// The splat that is being read.
#[derive(Debug)]
struct Open {
    splat: Splat,
    part: Part,
    lines: usize,
    /// The instruction in the registers.
    instruction: Option<Place>,
    /// The place in the first line.
    named: Option<Place>,
    /// The innermost context of the call trace, such as `IRQ`.
    innermost: Option<String>,
    /// Whether the innermost context has ended.
    left: bool,
}

/// Reads a log.
#[derive(Debug, Default)]
pub(super) struct Reader {
    splats: Vec<Splat>,
    open: Option<Open>,
    /// Whether `cut here` was the last line.
    cut_here: bool,
    /// The text between `cut here` and the line that names the place.
    text: Option<String>,
}

impl Reader {
    /// Reads one line. `driver` is the driver that was loaded last.
    pub(super) fn line(&mut self, line: &str, driver: &str) {
        if line == CUT_HERE {
            // A list's corruption is reported before this line.
            if !self.open.as_ref().is_some_and(|open| open.waits_for_place()) {
                self.close();
            }
            (self.cut_here, self.text) = (true, None);
            return;
        }
        let after_cut = std::mem::take(&mut self.cut_here);
        let sign = match after_cut {
            true => signs::of_text(line).or_else(|| signs::begins(line)),
            false => signs::begins(line),
        };
        if let Some(sign) = sign {
            return self.begin(sign, line, driver);
        }
        if after_cut {
            self.text = Some(line.trim().to_owned());
        }
        if let Some(open) = &mut self.open
            && !open.line(line)
        {
            self.close();
        }
    }

    /// A line that begins a splat, or continues the open one.
    fn begin(&mut self, sign: Sign, line: &str, driver: &str) {
        if let Some(open) = &mut self.open
            && open.continues_with(sign, line)
        {
            return open.detail(line);
        }
        let follows = CONSEQUENCES.iter().any(|reason| line.contains(reason));
        let some = self.open.is_some() || !self.splats.is_empty();
        if sign == Sign::Panic && follows && some {
            return self.close();
        }
        self.close();
        if self.splats.len() >= MAX_SPLATS {
            return;
        }
        // The text of a `WARN` is its first line.
        let text = self.text.take().filter(|_| matches!(sign, Sign::Warning | Sign::Bug));
        self.open = Some(Open::new(sign, line, text, driver));
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            self.splats.push(open.finish());
        }
    }

    pub(super) fn finish(mut self) -> Vec<Splat> {
        self.close();
        self.splats
    }
}

impl Open {
    fn new(sign: Sign, line: &str, text: Option<String>, driver: &str) -> Open {
        let (first, details) = match text {
            Some(text) => (text, vec![line.to_owned()]),
            None => (line.to_owned(), Vec::new()),
        };
        let mut open = Open {
            splat: Splat {
                sign,
                line: first,
                details,
                trace: Vec::new(),
                level: "",
                cpu: None,
                task: None,
                stacks: Vec::new(),
                object: None,
                loaded: driver.to_owned(),
            },
            part: Part::Head,
            lines: 0,
            instruction: None,
            named: None,
            innermost: None,
            left: false,
        };
        open.names(line);
        open
    }

    /// Takes the place, the CPU and the task from a line, as far as they are not known.
    fn names(&mut self, line: &str) {
        if self.named.is_none() && !line.contains("returned with") {
            self.named = frames::place_in(line);
        }
        let (cpu, task) = match frames::cpu_and_task(line) {
            Some((cpu, task)) => (Some(cpu), Some(task)),
            None => frames::cpu_hash(line),
        };
        let task = task.or_else(|| frames::atomic_task(line)).or_else(|| frames::blocked_task(line));
        self.splat.cpu = self.splat.cpu.or(cpu);
        // A name is better than none.
        if self.splat.task.as_ref().is_none_or(|known| known.name.is_empty()) {
            self.splat.task = task.or(self.splat.task.take());
        }
    }

    /// Whether only the first line, which is a text, was read: its place follows.
    fn waits_for_place(&self) -> bool {
        self.part == Part::Head
            && self.instruction.is_none()
            && matches!(self.splat.sign, Sign::Refcount | Sign::List | Sign::TxTimeout | Sign::DmaDebug)
    }

    /// Whether a line that could begin a splat belongs to this one.
    fn continues_with(&self, sign: Sign, line: &str) -> bool {
        let header = HEADERS.iter().any(|text| line.starts_with(text));
        let dies = matches!(self.splat.sign, Sign::Bug | Sign::Oops | Sign::List);
        self.waits_for_place() && matches!(sign, Sign::Warning | Sign::Bug)
            || self.part == Part::Head && self.instruction.is_none() && dies && header
    }

    fn detail(&mut self, line: &str) {
        self.names(line);
        if self.splat.details.len() < MAX_DETAILS {
            self.splat.details.push(line.trim().to_owned());
        }
    }

    /// Reads a line. False where the splat has ended before or with it.
    fn line(&mut self, line: &str) -> bool {
        let text = line.trim();
        self.lines += 1;
        if self.lines > MAX_LINES || text.starts_with("---[ end trace") {
            return false;
        }
        if text.starts_with("==========") {
            return self.splat.trace.is_empty();
        }
        match self.part {
            Part::Head => self.head(line, text),
            Part::Trace(inside) => return self.trace(line, text, inside),
            Part::Stack => self.stack(line, text),
            Part::Behind => self.behind(text),
        }
        true
    }

    fn head(&mut self, line: &str, text: &str) {
        if text == "Call Trace:" {
            self.part = Part::Trace(false);
        } else if let Some(place) = frames::instruction(text) {
            self.instruction = self.instruction.take().or(Some(place));
        } else if let Some(place) = frames::frame(line).filter(|_| self.has_bare_stack()) {
            self.splat.trace.push(place);
            self.part = Part::Trace(false);
        } else if text.starts_with("CPU: ") {
            self.names(text);
        } else if self.explains(text) {
            self.detail(text);
        }
    }

    /// Whether the stack stands under the first lines, without `Call Trace:`.
    fn has_bare_stack(&self) -> bool {
        matches!(self.splat.sign, Sign::Kfence | Sign::Kmsan | Sign::Kcsan)
    }

    /// Whether a line before the call trace says what happened.
    fn explains(&self, text: &str) -> bool {
        match self.splat.sign {
            Sign::Oops => text.starts_with("#PF: "),
            Sign::Leak => text.starts_with("unreferenced object ") || text.starts_with("comm "),
            Sign::Undefined => self.splat.details.is_empty() && !text.starts_with("Modules linked in"),
            Sign::Kfence | Sign::Kasan | Sign::Kcsan => {
                !text.is_empty() && !text.starts_with("Hardware name") && self.splat.details.len() < 2
            }
            Sign::Lockdep => {
                let rule = text.starts_with("---") || text.starts_with("Hardware name");
                !text.is_empty() && !rule && frames::place(text).is_none() && !frames::is_leftover(text)
            }
            _ => false,
        }
    }

    fn trace(&mut self, line: &str, text: &str, inside: bool) -> bool {
        if let Some(place) = frames::frame(line) {
            if self.splat.trace.len() < MAX_FRAMES {
                self.splat.trace.push(place);
            }
            self.softirq(text);
        } else if let Some(context) = text.strip_prefix("</").and_then(|rest| rest.strip_suffix('>')) {
            self.left |= self.innermost.as_deref() == Some(context);
            self.part = if context == "TASK" { Part::Behind } else { Part::Trace(true) };
        } else if let Some(context) = text.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')) {
            if self.innermost.is_none() {
                self.innermost = Some(context.chars().take(16).collect());
            }
            self.part = Part::Trace(true);
        } else if !inside && !frames::is_leftover(line) {
            self.part = Part::Behind;
            self.behind(text);
        }
        true
    }

    /// Both interrupts and softirqs run on the interrupt stack; a function of the innermost context says which.
    fn softirq(&mut self, text: &str) {
        let runs = ["handle_softirqs+", "__do_softirq+", "do_softirq+"].iter().any(|f| text.starts_with(f));
        if runs && !self.left && self.splat.level.is_empty() {
            self.splat.level = "softirq";
        }
    }

    fn stack(&mut self, line: &str, text: &str) {
        if frames::is_leftover(line) {
            return;
        }
        match (frames::frame(line), self.splat.stacks.last_mut()) {
            (Some(place), Some(stack)) if stack.trace.len() < MAX_FRAMES => stack.trace.push(place),
            (Some(_), _) => {}
            (None, _) => {
                self.part = Part::Behind;
                self.behind(text);
            }
        }
    }

    /// Behind a stack: other stacks, and who ran.
    fn behind(&mut self, text: &str) {
        let lower = text.to_ascii_lowercase();
        let headings = [
            "allocated by task ",
            "freed by task ",
            "uninit was ",
            "read to ",
            "write to ",
            "read (marked) to ",
        ];
        if headings.iter().any(|heading| lower.starts_with(heading)) {
            if self.splat.stacks.len() < MAX_STACKS {
                self.splat
                    .stacks
                    .push(Stack { what: text.trim_end_matches(':').to_owned(), trace: Vec::new() });
                self.part = Part::Stack;
            }
        } else if text.starts_with("CPU: ") && self.splat.cpu.is_none() {
            self.names(text);
        } else if let Some(object) = object(text) {
            self.splat.object = self.splat.object.take().or(Some(object));
        }
    }

    fn finish(mut self) -> Splat {
        if let Some(place) = self.instruction.or(self.named) {
            let same = self.splat.trace.first().is_some_and(|first| first.function == place.function);
            if !same && !matches!(self.splat.sign, Sign::Kfence | Sign::Kasan | Sign::Kmsan | Sign::Kcsan)
                || self.splat.trace.is_empty()
            {
                self.splat.trace.insert(0, place);
            }
        }
        if self.splat.level.is_empty() {
            self.splat.level = match self.innermost.as_deref() {
                Some("NMI") => "nmi",
                Some("IRQ") => "hardirq",
                _ => "process",
            };
        }
        self.splat
    }
}

/// The object in `kfence-#130: 0x…-0x…, size=32, cache=kmalloc-32`.
fn object(text: &str) -> Option<Object> {
    let (_, rest) = text.strip_prefix("kfence-#")?.split_once(": ")?;
    let (address, rest) = rest.split_once('-')?;
    let size = rest.split_once("size=")?.1;
    let (size, rest) = size.split_once(", ")?;
    let cache = rest.strip_prefix("cache=")?;
    Some(Object { address: address.to_owned(), size: size.parse().ok()?, cache: cache.to_owned() })
}
