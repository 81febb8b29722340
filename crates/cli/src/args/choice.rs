//! Options with few values, whose types belong to the engines.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Command, Error};
use guardrail_campaign::Harmed;
use guardrail_check::{GateKind, Mode, Observe};
use guardrail_guard::Policy;
use guardrail_protocol::export::Form;
use guardrail_report::fail_on::FailOn;
use guardrail_trace::log::Schedule;
use guardrail_vm::run::TcgThreads;
use std::ffi::OsStr;

/// A type with few values.
pub trait Choice: Copy + Send + Sync + 'static {
    /// Each value, its word on the command line, and one line for the help.
    fn all() -> Vec<(Self, &'static str, &'static str)>;
}

/// A parser for one of the values.
pub fn one_of<T: Choice>() -> impl TypedValueParser<Value = T> {
    let values = T::all().into_iter().map(|(_, word, help)| PossibleValue::new(word).help(help));
    PossibleValuesParser::new(values).map(|given| {
        let chosen = T::all().into_iter().find(|(_, word, _)| *word == given);
        chosen.map(|(value, ..)| value).expect("the parser admits these words only")
    })
}

/// A parser for [`FailOn`]: one of its words, or kinds of findings. The words are listed and completed.
#[derive(Clone)]
pub struct FailOnParser;

impl TypedValueParser for FailOnParser {
    type Value = FailOn;

    fn parse_ref(&self, command: &Command, option: Option<&Arg>, given: &OsStr) -> Result<FailOn, Error> {
        let parser = clap::builder::StringValueParser::new().try_map(|text| text.parse::<FailOn>());
        parser.parse_ref(command, option, given)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let kinds =
            PossibleValue::new("KIND,…").help("Errors and warnings of these kinds that are not known");
        let words = FailOn::WORDS.into_iter().map(|(_, word, help)| PossibleValue::new(word).help(help));
        Some(Box::new(words.chain([kinds])))
    }
}

impl Choice for Mode {
    fn all() -> Vec<(Mode, &'static str, &'static str)> {
        let cut = "Cut the device off: writes are dropped, reads give all ones, DMA and interrupts end; not for a data race that was judged harmless or undecided";
        let row = |mode: Mode, help| (mode, mode.word(), help);
        vec![
            row(Mode::Permissive, "Report it and go on"),
            row(
                Mode::Triage,
                "Cut the device off at races that were judged harmful, and at errors that put memory at risk",
            ),
            row(Mode::Stringent, cut),
        ]
    }
}

impl Choice for GateKind {
    fn all() -> Vec<(GateKind, &'static str, &'static str)> {
        let outside =
            "There as well, with the device in a QEMU of its own behind a gate that is a process of its own";
        let row = |gate: GateKind, help| (gate, gate.word(), help);
        vec![
            row(GateKind::Off, "Nowhere"),
            row(GateKind::Vmm, "In the driver's virtual machine, before the instruction"),
            row(GateKind::VfioUser, outside),
        ]
    }
}

impl Choice for Schedule {
    fn all() -> Vec<(Schedule, &'static str, &'static str)> {
        vec![
            (Schedule::Polling, "polling", "Look again without a pause"),
            (Schedule::Yielding, "yielding", "Give the processor away, then look again"),
            (Schedule::Interrupt, "interrupt", "Sleep, and be woken"),
        ]
    }
}

impl Choice for TcgThreads {
    fn all() -> Vec<(TcgThreads, &'static str, &'static str)> {
        vec![
            (TcgThreads::Single, "single", "By turns on one thread"),
            (TcgThreads::Multi, "multi", "On a thread each"),
        ]
    }
}

impl Choice for Observe {
    fn all() -> Vec<(Observe, &'static str, &'static str)> {
        vec![
            (Observe::None, "none", "Plain QEMU"),
            (Observe::Trace, "trace", "The tracer, whose log nobody reads"),
            (Observe::Check, "check", "Tracer and checkers"),
        ]
    }
}

impl Choice for guardrail_profile::Format {
    fn all() -> Vec<(guardrail_profile::Format, &'static str, &'static str)> {
        use guardrail_profile::Format;
        vec![
            (Format::Text, "text", "For people"),
            (Format::Json, "json", "One object for programs"),
            (Format::Sarif, "sarif", "The findings for code-scanning tools (SARIF 2.1.0)"),
        ]
    }
}

impl Choice for Policy {
    fn all() -> Vec<(Policy, &'static str, &'static str)> {
        let row = |policy: Policy, help| (policy, policy.word(), help);
        vec![
            row(Policy::Log, "Report it, and go on"),
            row(Policy::Oops, "End the thread"),
            row(Policy::Fail, "End the call of the driver with an error"),
            row(Policy::Recover, "Tear the driver down, load it again and restore its state"),
        ]
    }
}

impl Choice for Harmed {
    fn all() -> Vec<(Harmed, &'static str, &'static str)> {
        vec![
            (Harmed::Disk, "disk", "A disk"),
            (Harmed::Net, "net", "What leaves a network card"),
            (Harmed::All, "all", "Everything there is a driver for"),
        ]
    }
}

impl Choice for Form {
    fn all() -> Vec<(Form, &'static str, &'static str)> {
        vec![
            (Form::Dot, "dot", "Graphviz"),
            (Form::Promela, "promela", "Spin, with a driver that sends what it likes"),
            (Form::Rv, "rv", "Graphviz, in the dialect of the kernel's runtime verification (rvgen)"),
            (Form::RvC, "rv-c", "C, as rvgen makes it"),
        ]
    }
}
