//! Whether the run of an ordinary driver that a trace holds is a run of a message protocol.
//!
//! Knows: which callbacks and calls in a trace belong to which object of the protocol's chart.
//!
//! Must not know: what a protocol allows, which `guardrail_protocol::accept` decides.

use crate::analysis::engine::Engine;
use crate::reach::Reach;
use crate::trace_head;
use guardrail_analysis::checker::{Checker, Cx};
use guardrail_analysis::machine::Out;
use guardrail_analysis::order::Entry;
use guardrail_host::{Host, HostError};
use guardrail_protocol::Machine;
use guardrail_protocol::accept::{Acceptor, Observed, Verdict};
use guardrail_protocol::model::Link;
use guardrail_trace::file::Ending;
use guardrail_vm::OwnedFolder;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::path::Path;
use std::rc::Rc;

/// The most events that are kept. A longer run is followed up to here.
const MAX_EVENTS: usize = 1 << 22;
/// The most objects that are printed.
const MAX_SHOWN: usize = 50;
/// How many events before a refused one are printed.
const LAST: usize = 8;

/// What a trace says about a protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    /// The result for people.
    pub text: String,
    /// Whether the protocol allows all events.
    pub accepted: bool,
    /// Where the trace was cut, and how; absent for a whole one.
    pub cut: Option<String>,
}

/// The key of an object; the second part is 0 where its chart has one part.
type Key = [u64; 2];

/// What identifies the object of an event.
#[derive(Clone, Debug)]
enum Of {
    Key(Key),
    /// The arguments of a call, which has the object's key among them.
    Arguments(Vec<u64>),
}

/// An event with its object.
type Event = (Of, Observed);

/// Follows the run of a trace. For good, the process then opens only what a trace may name, and starts nothing.
pub fn follow(file: &Path, machine: &Machine, reach: &Reach, host: &Host) -> Result<Followed, HostError> {
    let Some(chart) = machine.protocol.of.clone() else {
        return Err(HostError::Usage(format!(
            "protocol {} belongs to no chart, so a trace shows nothing of it; expected a line 'of CHART'",
            machine.name()
        )));
    };
    let folder = OwnedFolder::large("guardrail-").map_err(HostError::io("create", "a temporary folder"))?;
    let mut trace = reach.open(file, [folder.around().to_path_buf()].into_iter())?;
    let subject = trace_head::subject(trace.meta(), reach)?;
    let input = trace_head::input(trace.meta(), &subject, folder.path())?;
    host.progress.step(&format!("reading {}", file.display()));
    let events: Rc<RefCell<Vec<Event>>> = Rc::default();
    let collector = Collector {
        chart,
        calls: calls(machine),
        events: Rc::clone(&events),
        functions: Functions::default(),
    };
    Engine::with(&input, vec![Box::new(collector)])?.run(&mut trace, &mut |_| {}, &mut |_, _| false)?;
    host.progress.finish();
    let cut = match trace.ending() {
        Some(ending @ Ending::Truncated { .. }) => Some(ending.to_string()),
        _ => None,
    };
    let events = events.take();
    let (text, accepted) = judge(machine, &events);
    Ok(Followed { text, accepted, cut })
}

/// The kernel functions whose calls stand for messages.
fn calls(machine: &Machine) -> Vec<String> {
    let links = machine.protocol.transitions.iter().filter_map(|transition| transition.link.as_ref());
    let names = links.filter_map(|link| match link {
        Link::Call(names, _) => Some(names.clone()),
        _ => None,
    });
    names.flatten().collect()
}

/// Collects the events of a trace.
struct Collector {
    chart: String,
    calls: Vec<String>,
    events: Rc<RefCell<Vec<Event>>>,
    functions: Functions,
}

/// The driver's functions behind callbacks that their callers identify.
///
/// These may call others of the driver, which are not the callback: `__dev_open` also sets the filter of addresses. The
/// callback is the one that they called first for some object. Objects of one driver may have different ones: the streams
/// of a sound card do.
#[derive(Default)]
struct Functions {
    /// For each callback the functions that are it.
    known: BTreeSet<(usize, u64)>,
    /// The callbacks of objects that were seen.
    seen: BTreeSet<(usize, Key)>,
}

impl Functions {
    /// Whether a function that the callers of `callback` have called for an object is the callback.
    fn is(&mut self, callback: usize, key: Key, function: u64) -> bool {
        if self.seen.len() < MAX_EVENTS && self.seen.insert((callback, key)) {
            self.known.insert((callback, function));
        }
        self.known.contains(&(callback, function))
    }
}

impl Collector {
    fn add(&self, of: Of, event: Observed) {
        let mut events = self.events.borrow_mut();
        if events.len() < MAX_EVENTS {
            events.push((of, event));
        }
    }

    /// The object's key and the callback's name, if the run is one of the chart's callbacks.
    fn callback(&mut self, cx: &Cx<'_>, entry: &Entry) -> Option<(Key, String)> {
        let (chart, callback, instance) = entry.callback?;
        let rules = cx.state.order.charts().get(chart).filter(|rules| rules.name == self.chart)?;
        let (_, key, _) = cx.state.order.instances(chart).find(|(number, ..)| *number == instance)?;
        if !rules.callbacks.get(callback)?.from.is_empty()
            && !self.functions.is(callback, key, entry.function)
        {
            return None;
        }
        Some((key, rules.callbacks.get(callback)?.name.clone()))
    }
}

impl Checker for Collector {
    fn name(&self) -> &'static str {
        "follow"
    }

    fn needs_sync(&self) -> bool {
        true
    }

    fn entered(&mut self, cx: &mut Cx<'_>, entry: &Entry) {
        if let Some((key, name)) = self.callback(cx, entry) {
            self.add(Of::Key(key), Observed::Begin(name));
        }
    }

    fn left(&mut self, cx: &mut Cx<'_>, entry: &Entry) {
        if let Some((key, name)) = self.callback(cx, entry) {
            self.add(Of::Key(key), Observed::End(name, entry.result));
        }
    }

    fn call_returned(&mut self, _: &mut Cx<'_>, out: &Out, result: u64) {
        let name = out.summary.as_ref().map(|summary| summary.name.as_str()).unwrap_or_default();
        if self.calls.iter().any(|known| known == name) {
            self.add(Of::Arguments(out.args.to_vec()), Observed::Call(name.to_owned(), Some(result)));
        }
    }
}

/// An object that is followed.
struct Followee<'a> {
    acceptor: Acceptor<'a>,
    /// How many events the protocol has allowed.
    count: usize,
    /// The last of them.
    last: VecDeque<&'a Observed>,
    /// Why the next one is not allowed.
    refused: Option<String>,
}

impl<'a> Followee<'a> {
    fn new(machine: &'a Machine, callbacks: BTreeSet<&'a str>) -> Followee<'a> {
        let acceptor = Acceptor::new(machine, callbacks);
        Followee { acceptor, count: 0, last: VecDeque::new(), refused: None }
    }
}

/// The object whose key a call has among its arguments.
fn object_of(objects: &BTreeMap<Key, Followee<'_>>, arguments: &[u64]) -> Option<Key> {
    let all = |key: &Key| key[1] == 0 || arguments.contains(&key[1]);
    let of = |&first: &u64| objects.range([first, 0]..=[first, u64::MAX]).map(|(key, _)| *key).find(all);
    arguments.iter().find_map(of)
}

/// Follows each object by itself.
fn judge<'a>(machine: &'a Machine, events: &'a [Event]) -> (String, bool) {
    let mut callbacks: BTreeMap<Key, BTreeSet<&str>> = BTreeMap::new();
    for (of, event) in events {
        if let (Of::Key(key), Some(name)) = (of, event.callback()) {
            callbacks.entry(*key).or_default().insert(name);
        }
    }
    let known = callbacks.into_iter().map(|(key, callbacks)| (key, Followee::new(machine, callbacks)));
    let mut objects: BTreeMap<Key, Followee<'_>> = known.collect();
    for (of, event) in events {
        let key = match of {
            Of::Key(key) => Some(*key),
            Of::Arguments(arguments) => object_of(&objects, arguments),
        };
        let Some(object) =
            key.and_then(|key| objects.get_mut(&key)).filter(|object| object.refused.is_none())
        else {
            continue;
        };
        let before = object.acceptor.states().join(", ");
        match object.acceptor.take(event) {
            Verdict::Irrelevant => {}
            Verdict::Allowed => {
                object.count += 1;
                object.last.push_back(event);
                if object.last.len() > LAST {
                    object.last.pop_front();
                }
            }
            Verdict::Refused => {
                let last: Vec<String> = object.last.iter().map(|event| event.to_string()).collect();
                let behind =
                    if last.is_empty() { String::new() } else { format!(", behind {}", last.join(", ")) };
                object.refused =
                    Some(format!("event {}, {event}, is not allowed in {before}{behind}", object.count + 1));
            }
        }
    }
    let accepted = objects.values().all(|object| object.refused.is_none());
    let mut text = String::new();
    for (key, object) in objects.iter().take(MAX_SHOWN) {
        let end = match &object.refused {
            Some(refused) => format!("refused: {refused}"),
            None => {
                format!("accepted: {} events, then in {}", object.count, object.acceptor.states().join(", "))
            }
        };
        let second = if key[1] == 0 { String::new() } else { format!(" {:#x}", key[1]) };
        let _ = writeln!(text, "{} {:#x}{second} {end}", machine.name(), key[0]);
    }
    if objects.len() > MAX_SHOWN {
        let _ = writeln!(text, "and {} objects more", objects.len() - MAX_SHOWN);
    }
    if objects.is_empty() {
        let _ = writeln!(text, "the trace has no object of protocol {}", machine.name());
    }
    (text, accepted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_protocol::parse;

    const TEXT: &str = "protocol p
  of pci
  state off initial
  state on
  in probe: off -> on is begin probe
  out named: on -> same is call register if zero
  out removed: on -> off is end remove
";

    #[test]
    fn objects_are_followed_apart_and_calls_find_theirs() {
        let machine = parse::machines("x", TEXT).unwrap().remove(0);
        let begin = |key, name: &str| (Of::Key([key, 0]), Observed::Begin(name.to_owned()));
        let call =
            |args: &[u64]| (Of::Arguments(args.to_vec()), Observed::Call("register".to_owned(), Some(0)));
        let good = [begin(16, "probe"), call(&[3, 16, 0]), begin(32, "probe"), call(&[3, 4, 5])];
        let (text, accepted) = judge(&machine, &good);
        assert!(accepted);
        assert_eq!(text, "p 0x10 accepted: 2 events, then in on\np 0x20 accepted: 1 events, then in on\n");
        let bad = [begin(16, "probe"), begin(16, "probe"), begin(32, "probe")];
        let (text, accepted) = judge(&machine, &bad);
        assert!(!accepted);
        assert!(
            text.starts_with(
                "p 0x10 refused: event 2, begin of probe, is not allowed in on, behind begin of probe\np 0x20 accepted"
            )
        );
        assert_eq!(judge(&machine, &[]), ("the trace has no object of protocol p\n".to_owned(), true));
    }
}
