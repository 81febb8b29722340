//! Prints the events of a trace as text (`guardrail view`).
//!
//! Knows: the form of every event, which events a filter selects.
//!
//! Must not know: what events mean to a checker.

mod names;
mod words;

use crate::reach::Reach;
use guardrail_host::HostError;
use guardrail_trace::Segment;
use guardrail_trace::event::{Event, Kind};
use guardrail_trace::file::{Ending, TraceReader};
use guardrail_trace::invariants::Checker;
use std::collections::HashMap;
use std::io::{self, Write};
use std::iter::empty;
use std::path::Path;
use words::{Ring, Wording};

/// The names of kinds, for `--kind`.
const KINDS: [(&str, Kind); 22] = [
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
    ("stack", Kind::Stack),
];
/// Values of `--kind` that are not kinds of records.
const ACCESSES: [&str; 3] = ["access", "load", "store"];

/// A filter of events. An event must fit every field that is present.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The driver's or kernel's function that runs or is named.
    pub function: Option<String>,
    /// The number of the thread.
    pub thread: Option<u64>,
    /// The first and the last address of a range; an access must overlap it.
    pub address: Option<(u64, u64)>,
    /// The name of the event's kind.
    pub kind: Option<String>,
    /// The most events that are printed.
    pub limit: Option<u64>,
}

impl Filter {
    /// Refuses a kind that no event has.
    pub fn refuse(&self) -> Result<(), HostError> {
        let Some(kind) = &self.kind else { return Ok(()) };
        let names = || KINDS.iter().map(|(name, _)| *name).chain(ACCESSES);
        if names().any(|name| name == kind) {
            return Ok(());
        }
        let near = guardrail_vm::error::suggest(kind, names());
        let near = if near.is_empty() { names().map(str::to_owned).collect() } else { near };
        Err(guardrail_vm::Error::Unknown { what: "kind of event", name: kind.clone(), near }.into())
    }
}

/// Writes the events of a trace that a filter selects. For good, the process then opens only what a trace may name, and
/// writes only what is open. Returns where the trace was cut, and how; `None` for a
/// whole one.
pub fn events(
    file: &Path,
    reach: &Reach,
    filter: &Filter,
    out: &mut dyn Write,
) -> Result<Option<String>, HostError> {
    filter.refuse()?;
    let mut trace = reach.open(file, empty())?;
    let wording = Wording::open(trace.meta(), reach);
    let mut viewer = Viewer { filter, wording, rings: HashMap::new(), event: 0, printed: 0 };
    let mut result = Ok(());
    while let Some(segment) = trace.next()? {
        result = viewer.segment(&segment, out);
        if result.is_err() || filter.limit.is_some_and(|limit| viewer.printed >= limit) {
            break;
        }
    }
    match result.and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            return Err(HostError::io("write to", "standard output")(error));
        }
        _ => {}
    }
    Ok(cut(&trace))
}

/// The violations of a trace's invariants.
pub struct Violations {
    /// One line each, and a line of totals.
    pub text: String,
    /// True where the trace violates none.
    pub clean: bool,
    /// Where the trace was cut, and how; `None` for a whole one.
    pub cut: Option<String>,
}

/// Checks the invariants of a trace.
pub fn check(file: &Path, reach: &Reach) -> Result<Violations, HostError> {
    let mut trace = reach.open(file, empty())?;
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
    Ok(Violations { text, clean: stats.violations == 0, cut: cut(&trace) })
}

fn cut(trace: &TraceReader) -> Option<String> {
    match trace.ending() {
        Some(ending @ Ending::Truncated { .. }) => Some(ending.to_string()),
        _ => None,
    }
}

struct Viewer<'a> {
    filter: &'a Filter,
    wording: Wording,
    rings: HashMap<u32, Ring>,
    /// Events so far; the number of the last one, as reports give it.
    event: u64,
    printed: u64,
}

impl Viewer<'_> {
    fn segment(&mut self, segment: &Segment<'_>, out: &mut dyn Write) -> io::Result<()> {
        let mut ring = self.rings.remove(&segment.ring).unwrap_or_default();
        if !segment.continuation {
            ring.block = None;
        }
        for event in segment.events() {
            if self.filter.limit.is_some_and(|limit| self.printed >= limit) {
                break;
            }
            self.event += 1;
            let number = self.event;
            let (kind, text, extra) = match event {
                Ok(Event::Access(access)) => {
                    let kind = if access.store { "store" } else { "load" };
                    (kind, self.wording.access(access), None)
                }
                Ok(Event::Record(head, operands)) => {
                    let words = self.wording.record(&mut ring, head, operands);
                    let name =
                        KINDS.iter().find(|(_, kind)| *kind == head.kind).map_or("?", |(name, _)| name);
                    (name, words.text, words.function)
                }
                Err(error) => {
                    writeln!(out, "{number:>9} {:>9} ring {}  {error}", segment.ticket, segment.ring)?;
                    continue;
                }
            };
            let function = self.wording.function(&ring);
            if !self.wanted(kind, &ring, event.ok(), function.as_deref(), extra.as_deref()) {
                continue;
            }
            self.printed += 1;
            write!(out, "{number:>9} {:>9} ring {}  {kind:<13} {text}", segment.ticket, segment.ring)?;
            match function.filter(|_| matches!(kind, "load" | "store" | "call" | "port" | "rep")) {
                Some(function) => writeln!(out, "  in {function}")?,
                None => writeln!(out)?,
            }
        }
        self.rings.insert(segment.ring, ring);
        Ok(())
    }

    /// Applies the filters. An event must pass all of them.
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
        self.filter
            .kind
            .as_deref()
            .is_none_or(|wanted| wanted == kind || wanted == "access" && access.is_some())
            && self.filter.thread.is_none_or(|pid| ring.pid == Some(pid))
            && self.filter.address.is_none_or(|(from, to)| {
                access.is_some_and(|a| a.addr <= to && a.addr.saturating_add(a.size.into()) > from)
            })
            && self
                .filter
                .function
                .as_ref()
                .is_none_or(|wanted| *wanted == bare(function) || *wanted == bare(extra))
    }
}
