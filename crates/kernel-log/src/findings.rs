//! Splats become findings: whose fault they are, how severe they are, and which of them are equal.

use crate::frames::Place;
use crate::signs::Sign;
use crate::splat::{Object, Splat, splats};
use crate::titles::{guilty, title};
use guardrail_finding::{
    CallStack, ContextInfo, Finding, Fingerprints, Frame, KERNEL_CHECKER, ObjectInfo, Related, Severity,
};

/// The module of the kernel itself.
const KERNEL: &str = "vmlinux";
/// The most findings of a log.
const MAX_FINDINGS: usize = 256;

/// The findings of a log, in the order of their first occurrence. `drivers` are the modules that are checked.
pub fn findings(log: &str, drivers: &[&str]) -> Vec<Finding> {
    let mut prints = Fingerprints::default();
    let mut findings: Vec<Finding> = Vec::new();
    for splat in splats(log) {
        let mut finding = finding(&splat, drivers);
        finding.id = id(&finding, splat.sign, &mut prints);
        if let Some(known) = findings.iter_mut().find(|known| known.id == finding.id) {
            known.count += 1;
            continue;
        }
        if findings.len() < MAX_FINDINGS {
            findings.push(finding);
        }
    }
    findings
}

/// The frames of all stacks of a finding, each with the offset of its instruction. The log has the offset of the
/// next one where a function calls another.
pub fn instructions(finding: &mut Finding) -> impl Iterator<Item = (&mut Frame, u64)> {
    // The first frame is the instruction itself, unless the fault was found when an object was freed.
    let calls =
        [": invalid free in ", ": memory corruption in "].iter().any(|text| finding.message.contains(text));
    let object = finding.object.iter_mut().flat_map(|object| [&mut object.allocated, &mut object.freed]);
    let stacks =
        object.flatten().map(|at| &mut at.stack).chain(finding.related.iter_mut().map(|one| &mut one.stack));
    let further = stacks.flatten().map(|frame| (frame.offset.saturating_sub(1), frame));
    let own = finding
        .stack
        .iter_mut()
        .enumerate()
        .map(move |(number, frame)| (frame.offset.saturating_sub(u64::from(number > 0 || calls)), frame));
    own.chain(further).map(|(offset, frame)| (frame, offset))
}

/// The fingerprint. The kernel's functions in the stack do not count, and neither does the place where a waiting
/// thread or a busy CPU happened to be.
fn id(finding: &Finding, sign: Sign, prints: &mut Fingerprints) -> String {
    let mut named = finding.clone();
    named.stack.retain(Frame::in_driver);
    if sign.is_timed() {
        named.offset = 0;
    }
    prints.of(&named)
}

/// Where a splat shows a driver.
enum Shown<'a> {
    /// In its call trace.
    Trace(&'a Place),
    /// In a further stack: that of the allocation of the object, for example.
    Stack(&'a Place, &'a str),
    /// By name in its text.
    Text(&'a str),
}

fn shown<'a>(splat: &'a Splat, drivers: &[&'a str]) -> Option<Shown<'a>> {
    let own = |place: &&Place| place.module.as_deref().is_some_and(|module| drivers.contains(&module));
    if let Some(place) = splat.trace.iter().find(own) {
        return Some(Shown::Trace(place));
    }
    let mut stacks = splat.stacks.iter();
    if let Some((place, what)) =
        stacks.find_map(|stack| Some((stack.trace.iter().find(own)?, stack.what.as_str())))
    {
        return Some(Shown::Stack(place, what));
    }
    // `NETDEV WATCHDOG: eth0 (e1000): transmit queue 0 timed out`, and from 6.5 on `e1000 0000:00:03.0 eth0: …`
    if !matches!(splat.sign, Sign::TxTimeout | Sign::DmaDebug) {
        return None;
    }
    let words = || splat.line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-'));
    drivers.iter().copied().find(|name| words().any(|word| word.replace('-', "_") == **name)).map(Shown::Text)
}

fn finding(splat: &Splat, drivers: &[&str]) -> Finding {
    let shown = shown(splat, drivers);
    let mut notes = vec![format!("Title: {}", title(splat))];
    notes.extend(splat.details.iter().cloned());
    let (at, module, severity) = match &shown {
        Some(Shown::Trace(place)) => (Some(*place), place.module.clone(), Severity::Error),
        Some(Shown::Stack(place, what)) => {
            notes.push(format!("The driver is not in the call trace, but in the stack '{what}'."));
            (Some(*place), place.module.clone(), Severity::Error)
        }
        Some(Shown::Text(name)) => {
            notes.push(format!("The kernel names the driver {name}."));
            (None, Some((*name).to_owned()), Severity::Error)
        }
        None => {
            let grave = splat.sign.is_grave();
            notes.push(of_the_kernel(splat, grave));
            let at = guilty(splat);
            let severity = if grave { Severity::Error } else { Severity::Warning };
            (at, at.and_then(|place| place.module.clone()), severity)
        }
    };
    let frame = |place: &Place| Frame {
        function: place.function.clone(),
        module: place.module.clone(),
        offset: place.offset,
        other: place.module.as_deref().is_some_and(|module| !drivers.contains(&module)),
        ..Frame::default()
    };
    let stack = |places: &[Place]| places.iter().map(frame).collect::<Vec<_>>();
    let (object, related) = stacks(splat, &stack);
    Finding {
        checker: KERNEL_CHECKER.to_owned(),
        kind: splat.sign.kind().to_owned(),
        severity,
        message: splat.line.clone(),
        module: module.unwrap_or_else(|| KERNEL.to_owned()),
        function: at.map_or_else(|| "?".to_owned(), |place| place.function.clone()),
        offset: at.map_or(0, |place| place.offset),
        stack: stack(&splat.trace),
        context: ContextInfo {
            thread: splat.task.as_ref().map_or_else(String::new, ToString::to_string),
            cpu: splat.cpu.unwrap_or(0),
            level: splat.cpu.map_or_else(String::new, |_| splat.level.to_owned()),
            ..ContextInfo::default()
        },
        notes,
        object,
        related,
        count: 1,
        ..Finding::default()
    }
}

fn of_the_kernel(splat: &Splat, grave: bool) -> String {
    let severity = match grave {
        true => "an error, because the kernel's data are wrong or its code cannot continue",
        false => "a warning",
    };
    let trace =
        if splat.trace.is_empty() { "The kernel shows no call trace" } else { "The driver is in no stack" };
    format!(
        "{trace}, so this counts as the kernel's own fault, and as {severity}; {} was loaded last.",
        splat.loaded
    )
}

/// The object with the stacks of its allocation and free, and the other stacks.
fn stacks(splat: &Splat, stack: &dyn Fn(&[Place]) -> Vec<Frame>) -> (Option<ObjectInfo>, Vec<Related>) {
    let of = |word: &str| {
        let with = splat.stacks.iter().find(|one| one.what.to_ascii_lowercase().starts_with(word))?;
        Some(CallStack { stack: stack(&with.trace), ..CallStack::default() })
    };
    let (allocated, freed) = (of("allocated by"), of("freed by"));
    let known = splat.object.is_some() || allocated.is_some() || freed.is_some();
    let object = known.then(|| {
        let Object { address, size, cache } = splat.object.clone().unwrap_or_default();
        let (class, name) = ("slab".to_owned(), Some(cache).filter(|name| !name.is_empty()));
        ObjectInfo { address, size, class, name, allocated, freed, ..ObjectInfo::default() }
    });
    let others = splat.stacks.iter().filter(|one| {
        let what = one.what.to_ascii_lowercase();
        !what.starts_with("allocated by") && !what.starts_with("freed by")
    });
    let related =
        others.map(|one| Related { what: one.what.clone(), stack: stack(&one.trace), context: None });
    (object, related.collect())
}
