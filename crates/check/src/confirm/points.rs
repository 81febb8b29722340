//! Finds the instructions of a race that the tracer holds.

use guardrail_binfmt::ModuleImage;
use guardrail_binfmt::module::{SymbolKind, plain_name};
use guardrail_finding::{Finding, Frame};
use guardrail_host::HostError;
use guardrail_host::drivers;
use guardrail_trace::config::HoldPoint;
use guardrail_vm::parser::{Given, Job, Sizes, joined, pieces};
use guardrail_vm::prepare::Prepared;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The instructions of both sides of each race, or why they cannot be held. Races that can be have numbers, from 0.
pub fn of(prepared: &Prepared, races: &[&Finding]) -> Result<Vec<Result<Vec<HoldPoint>, String>>, HostError> {
    if races.is_empty() {
        return Ok(Vec::new());
    }
    let watched = drivers::watched(prepared).map(|driver| (&driver.name, driver.bytes.as_slice()));
    let (modules, bytes) = joined(watched);
    let job = Points { modules, races: races.iter().map(|race| stacks(race)).collect() };
    let found = prepared.parser.ask(&job, &[], &bytes);
    let driver = &prepared.plan.driver.path;
    let (found, _) = found.map_err(|error| error.of(driver, guardrail_vm::Error::BadValue))?;
    match found.len() == races.len() {
        true => Ok(found),
        false => Err(HostError::Run("the accesses of some races were not looked up".into())),
    }
}

/// The stacks of both accesses.
fn stacks(race: &Finding) -> [Vec<Frame>; 2] {
    [race.stack.clone(), race.other.as_ref().map_or(Vec::new(), |other| other.stack.clone())]
}

/// Looks the instructions of races up in traced modules, whose bytes follow one another.
#[derive(Debug, Serialize, Deserialize)]
pub struct Points {
    /// The names and sizes of the modules.
    modules: Sizes,
    races: Vec<[Vec<Frame>; 2]>,
}

impl Job for Points {
    const NAME: &'static str = "points";
    type Answer = Vec<Result<Vec<HoldPoint>, String>>;

    fn run(self, given: Given) -> Result<(Self::Answer, Vec<u8>), String> {
        let parse = |(name, bytes): (&str, &[u8])| {
            let image = ModuleImage::parse(name, bytes.to_vec()).map_err(|error| error.to_string())?;
            Ok((name.to_owned(), image))
        };
        let images =
            pieces(&self.modules, &given.bytes).map(parse).collect::<Result<HashMap<_, _>, String>>()?;
        let mut pair = 0;
        let one = |stacks: &[Vec<Frame>; 2]| {
            let points = of_race(stacks, &images, pair);
            pair += u32::from(points.is_ok());
            points
        };
        Ok((self.races.iter().map(one).collect(), Vec::new()))
    }
}

/// The instructions of both sides of a race, or why they cannot be held.
fn of_race(
    stacks: &[Vec<Frame>; 2],
    images: &HashMap<String, ModuleImage>,
    pair: u32,
) -> Result<Vec<HoldPoint>, String> {
    let mut points = Vec::new();
    for (role, stack) in (0u8..).zip(stacks) {
        let frame = stack.first().ok_or("the finding does not name both accesses")?;
        points.extend(side(frame, images, pair, role)?);
        // The kernel called the driver there. Without it, the holds are not timed as well.
        let begin = stack
            .iter()
            .rev()
            .find(|frame| frame.in_driver())
            .map(|frame| Frame { offset: 0, ..frame.clone() });
        let approaches = begin.and_then(|frame| side(&frame, images, pair, role).ok()).unwrap_or_default();
        points.extend(approaches.into_iter().map(|point| HoldPoint { approach: true, ..point }));
    }
    Ok(points)
}

fn side(
    frame: &Frame,
    images: &HashMap<String, ModuleImage>,
    pair: u32,
    role: u8,
) -> Result<Vec<HoldPoint>, String> {
    let place = || format!("{}+{:#x}", frame.function, frame.offset);
    let module =
        frame.module.as_ref().ok_or_else(|| format!("{} is in the kernel, which is not traced", place()))?;
    let image = images.get(module).ok_or_else(|| format!("the module {module} is not traced"))?;
    let functions = || {
        (0u32..).zip(image.symbols()).filter(|(_, symbol)| {
            matches!(symbol.kind, SymbolKind::Function | SymbolKind::NoType)
                && !symbol.undefined
                && (symbol.size == 0 || frame.offset < symbol.size)
        })
    };
    let named = |exact: bool| {
        functions()
            .filter(|(_, symbol)| {
                let name = image.symbol_name(symbol);
                if exact { name == frame.function } else { plain_name(name) == frame.function }
            })
            .map(|(symbol, _)| HoldPoint {
                module: module.clone(),
                symbol,
                offset: frame.offset,
                pair,
                role,
                approach: false,
            })
            .collect::<Vec<_>>()
    };
    let mut points = named(true);
    if points.is_empty() {
        points = named(false);
    }
    match points.is_empty() {
        true => Err(format!("the module {module} has no instruction {}", place())),
        false => Ok(points),
    }
}
