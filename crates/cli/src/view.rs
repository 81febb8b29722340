//! `guardrail view`: prints the events of a trace for people.

mod names;

use crate::args::ViewArgs;
use crate::errors::{CliError, Status, tell};
use guardrail_trace::Segment;
use guardrail_trace::event::level;
use guardrail_trace::event::{Access, EnterFlags, Event, Global, Head, Kind};
use guardrail_trace::file::{Ending, TraceReader};
use guardrail_trace::invariants::Checker;
use guardrail_trace::meet::{Meet, MeetOutcome, MeetSide};
use names::Names;
use std::collections::HashMap;
use std::io::{self, BufWriter, Write};

/// The names of kinds, for `--kind`.
const KINDS: [(&str, Kind); 21] = [
    ("block", Kind::Block),
    ("block-def", Kind::BlockDef),
    ("enter", Kind::Enter),
    ("call", Kind::Call),
    ("discontinuity", Kind::Discontinuity),
    ("hook-call", Kind::HookCall),
    ("hook-ret", Kind::HookRet),
    ("module-load", Kind::ModuleLoad),
    ("module-free", Kind::ModuleFree),
    ("module-unload", Kind::ModuleUnload),
    ("port", Kind::Port),
    ("thread", Kind::Thread),
    ("global", Kind::Global),
    ("end", Kind::End),
    ("rep", Kind::Rep),
    ("cut", Kind::Cut),
    ("return", Kind::Return),
    ("list", Kind::List),
    ("meet", Kind::Meet),
    ("other-module", Kind::OtherModule),
    ("other-unload", Kind::OtherUnload),
];
/// Names for `--kind` that are no records.
const ACCESSES: [&str; 3] = ["access", "load", "store"];

/// Prints events, or with `--check` what breaks the trace's invariants.
pub fn run(args: &ViewArgs) -> Result<Status, CliError> {
    if let Some(kind) = &args.kind {
        let names = || KINDS.iter().map(|(name, _)| *name).chain(ACCESSES);
        if !names().any(|name| name == kind) {
            let near = guardrail_vm::error::suggest(kind, names());
            let near = if near.is_empty() { names().map(str::to_owned).collect() } else { near };
            return Err(
                guardrail_vm::Error::Unknown { what: "kind of event", name: kind.clone(), near }.into()
            );
        }
    }
    let mut trace = TraceReader::open(&args.file)?;
    if args.check {
        return check(&mut trace, args);
    }
    let names = Names::open(trace.meta());
    let mut viewer = Viewer { args, names, rings: HashMap::new(), blocks: HashMap::new(), printed: 0 };
    let mut out = BufWriter::new(io::stdout().lock());
    let mut result = Ok(());
    while let Some(segment) = trace.next()? {
        result = viewer.segment(&segment, &mut out);
        if result.is_err() || args.limit.is_some_and(|limit| viewer.printed >= limit) {
            break;
        }
    }
    match result.and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            return Err(CliError::io("write to", "standard output")(error));
        }
        _ => {}
    }
    ending(&trace, args);
    Ok(Status::Clean)
}

fn check(trace: &mut TraceReader, args: &ViewArgs) -> Result<Status, CliError> {
    let mut checker = Checker::new().with_vcpus(trace.meta().vcpus);
    while let Some(segment) = trace.next()? {
        checker.segment(&segment);
    }
    let mut text = String::new();
    for violation in checker.violations() {
        text.push_str(&format!("{violation}\n"));
    }
    let stats = checker.stats();
    text.push_str(&format!(
        "{} segments, {} events, {} blocks, {} accesses, {} violations\n",
        stats.segments, stats.events, stats.blocks, stats.accesses, stats.violations
    ));
    crate::output::text(&text)?;
    ending(trace, args);
    Ok(if stats.violations == 0 { Status::Clean } else { Status::Findings })
}

fn ending(trace: &TraceReader, args: &ViewArgs) {
    if let Some(ending @ Ending::Truncated { .. }) = trace.ending() {
        tell("guardrail", &format!("{}: {ending}", args.file.display()));
    }
}

/// What is known of one ring while its segments pass.
#[derive(Default)]
struct Ring {
    block: Option<u64>,
    task: u64,
    pid: Option<u64>,
}

struct Viewer<'a> {
    args: &'a ViewArgs,
    names: Names,
    rings: HashMap<u32, Ring>,
    /// Addresses of blocks.
    blocks: HashMap<u64, u64>,
    printed: u64,
}

impl Viewer<'_> {
    fn segment(&mut self, segment: &Segment<'_>, out: &mut dyn Write) -> io::Result<()> {
        let mut ring = self.rings.remove(&segment.ring).unwrap_or_default();
        if !segment.continuation {
            ring.block = None;
        }
        for event in segment.events() {
            if self.args.limit.is_some_and(|limit| self.printed >= limit) {
                break;
            }
            let (kind, text, extra) = match event {
                Ok(Event::Access(access)) => {
                    let kind = if access.store { "store" } else { "load" };
                    (kind, self.access(access), None)
                }
                Ok(Event::Record(head, operands)) => {
                    let told = self.record(&mut ring, head, operands);
                    let name =
                        KINDS.iter().find(|(_, kind)| *kind == head.kind).map_or("?", |(name, _)| name);
                    (name, told.text, told.function)
                }
                Err(error) => {
                    writeln!(out, "{:>9} ring {}  {error}", segment.ticket, segment.ring)?;
                    continue;
                }
            };
            let place = ring.block.and_then(|block| self.blocks.get(&block)).copied();
            let function = place.and_then(|address| self.names.at(address));
            if !self.wanted(kind, &ring, event.ok(), function.as_deref(), extra.as_deref()) {
                continue;
            }
            self.printed += 1;
            write!(out, "{:>9} ring {}  {kind:<13} {text}", segment.ticket, segment.ring)?;
            match function.filter(|_| matches!(kind, "load" | "store" | "call" | "port" | "rep")) {
                Some(function) => writeln!(out, "  in {function}")?,
                None => writeln!(out)?,
            }
        }
        self.rings.insert(segment.ring, ring);
        Ok(())
    }

    /// Applies the filters. All that are given must agree.
    fn wanted(
        &self,
        kind: &str,
        ring: &Ring,
        event: Option<Event<'_>>,
        function: Option<&str>,
        extra: Option<&str>,
    ) -> bool {
        let bare = |name: Option<&str>| {
            name.map(|name| name.split(['+', ' ']).next().unwrap_or(name).to_owned()).unwrap_or_default()
        };
        let access = match event {
            Some(Event::Access(access)) => Some(access),
            _ => None,
        };
        self.args
            .kind
            .as_deref()
            .is_none_or(|wanted| wanted == kind || wanted == "access" && access.is_some())
            && self.args.thread.is_none_or(|pid| ring.pid == Some(pid))
            && self.args.address.is_none_or(|(from, to)| {
                access.is_some_and(|a| a.addr <= to && a.addr.saturating_add(a.size.into()) > from)
            })
            && self
                .args
                .function
                .as_ref()
                .is_none_or(|wanted| *wanted == bare(function) || *wanted == bare(extra))
    }

    fn access(&self, access: Access) -> String {
        let device = if access.io { " of a device" } else { "" };
        let name = self.names.at(access.addr).map_or(String::new(), |name| format!(" ({name})"));
        format!("{} at {:#x}{name}{device}, instruction {}", access.size, access.addr, access.insn)
    }

    fn record(&mut self, ring: &mut Ring, head: Head, operands: &[u64]) -> Told {
        let word = |i: usize| operands.get(i).copied().unwrap_or(0);
        match head.kind {
            Kind::Block => {
                ring.block = Some(head.large);
                let address = self.blocks.get(&head.large).copied();
                let place = address.map_or("never defined".to_owned(), |address| self.place(address));
                Told::new(format!("{} {place}", head.large))
            }
            Kind::BlockDef => {
                self.blocks.insert(head.large, word(0));
                Told::new(format!("{} {}, {} bytes", head.large, self.place(word(0)), word(1)))
            }
            Kind::Enter => {
                ring.task = word(0);
                ring.pid = Some(word(3));
                let flags = head.small;
                let irq = if flags & EnterFlags::INTERRUPTS_ON != 0 { "on" } else { "off" };
                let level = level(head.large as u32);
                let mut text =
                    format!("{} {level}, interrupts {irq}, rax {:#x}", self.names.thread(word(3)), word(2));
                if flags & EnterFlags::ARGS != 0 {
                    text.push_str(&format!(
                        ", called from {} with {}",
                        self.place(word(10)),
                        list(operands, 4, 6)
                    ));
                }
                Told::new(text)
            }
            Kind::Call => {
                let how = if head.small & 1 != 0 { "jump to" } else { "call of" };
                let target = self.place(head.address());
                Told { text: format!("{how} {target} with {}", list(operands, 1, 6)), function: Some(target) }
            }
            Kind::Discontinuity => {
                let what = if head.small == 1 { "interrupt" } else { "exception" };
                let fault = if word(1) != 0 { format!(", CR2 {:#x}", word(1)) } else { String::new() };
                Told::new(format!(
                    "{what} at {}, handler {}{fault}",
                    self.place(head.address()),
                    self.place(word(0))
                ))
            }
            Kind::HookCall => {
                let name = self.names.hook(head.large);
                let count = usize::from(head.small);
                let text = format!("{name}({}) from {}", list(operands, 3, count), self.place(word(2)));
                Told { text, function: Some(name) }
            }
            Kind::HookRet => {
                let name = self.names.hook(head.large);
                Told { text: format!("{name} = {:#x}", word(1)), function: Some(name) }
            }
            Kind::ModuleLoad | Kind::OtherModule => {
                let regions = 9 + 3 * usize::from(head.small);
                let name = text_of(operands.get(1..9).unwrap_or_default());
                self.names.load(&name, operands.get(regions..).unwrap_or_default());
                let mut text = format!("{name} at {:#x}", head.address());
                for region in operands.get(9..regions).unwrap_or_default().chunks_exact(3) {
                    text.push_str(&format!(", {:#x}..{:#x}", region[0], region[0].wrapping_add(region[1])));
                }
                Told::new(text)
            }
            Kind::ModuleFree => Told::new(format!("{:#x}..{:#x}", word(0), word(1))),
            Kind::ModuleUnload | Kind::OtherUnload => Told::new(format!("{:#x}", head.address())),
            Kind::Port => {
                let (port, insn) = (head.large & 0xffff, head.large >> 16);
                let way = if head.small & 0x80 != 0 { "out" } else { "in" };
                Told::new(format!("{way} {} at port {port:#x}, instruction {insn}", head.small & 0x7f))
            }
            Kind::Thread => {
                let name = text_of(operands.get(1..).unwrap_or_default());
                self.names.add_thread(head.large, &name);
                Told::new(format!("{name}/{}, task {:#x}", head.large, word(0)))
            }
            Kind::Global => {
                let global = Global::from_small(head.small);
                if global == Some(Global::Slide) {
                    self.names.set_slide(word(0));
                }
                let name = global.map_or("unknown".to_owned(), |global| format!("{global:?}"));
                Told::new(format!("{name} = {:#x}", word(0)))
            }
            Kind::Return => Told::new(format!("rax {:#x}", word(0))),
            Kind::List => {
                let words = operands.get(2..).unwrap_or_default();
                Told::new(format!("of {}: {}", self.names.hook(head.large), list(words, 0, words.len())))
            }
            Kind::Meet => Told::new(Meet::decode(head, operands).map_or(String::new(), |m| self.meet(&m))),
            Kind::End | Kind::Cut => Told::new(String::new()),
            Kind::Rep => Told::new(format!("count {}, from {:#x}, to {:#x}", word(0), word(1), word(2))),
        }
    }

    fn meet(&self, meet: &Meet) -> String {
        let side = |side: &MeetSide| {
            let way = if side.store { "write" } else { "read" };
            let (place, level) = (self.place(side.pc), level(side.preempt_count));
            format!("{way} of {} at {:#x} by {place} on CPU {}, {level}", side.size, side.address, side.cpu)
        };
        let pair = meet.pair.map_or("sample".to_owned(), |pair| format!("pair {pair}"));
        if meet.outcome == MeetOutcome::Totals {
            return format!("{pair}: the sides ran {} and {} times", meet.arrivals[0], meet.arrivals[1]);
        }
        let mut text = format!("{pair}, {:?}: {}", meet.outcome, side(&meet.held));
        if meet.other.pc != 0 {
            text.push_str(&format!(" and {}", side(&meet.other)));
        }
        for (value, when) in meet.values.iter().zip(["before", "after the one", "after both"]) {
            if let Some(value) = value {
                text.push_str(&format!(", {value:#x} {when}"));
            }
        }
        format!("{text}; {} spins, {} µs", meet.spins, meet.nanos / 1000)
    }

    fn place(&self, address: u64) -> String {
        self.names.at(address).unwrap_or_else(|| format!("{address:#x}"))
    }
}

/// An event in words, and the function that it names besides the one that runs.
struct Told {
    text: String,
    function: Option<String>,
}

impl Told {
    fn new(text: String) -> Told {
        Told { text, function: None }
    }
}

fn list(words: &[u64], from: usize, count: usize) -> String {
    let words: Vec<String> = words.iter().skip(from).take(count).map(|word| format!("{word:#x}")).collect();
    words.join(", ")
}

/// The text in NUL-padded words; what steers a terminal stays behind.
fn text_of(words: &[u64]) -> String {
    let bytes: Vec<u8> =
        words.iter().flat_map(|word| word.to_le_bytes()).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_follow_the_count() {
        assert_eq!(level(1), "process");
        assert_eq!(level(0x101), "softirq");
        assert_eq!(level(0x1_0100), "hardirq");
        assert_eq!(level(0x10_0000), "nmi");
    }

    #[test]
    fn names_are_clean() {
        assert_eq!(text_of(&[u64::from_le_bytes(*b"ab\x1bcd\0\0\0"), 7]), "ab?cd");
    }
}
