//! Finds the instructions of a race that the tracer holds.

use guardrail_binfmt::ModuleImage;
use guardrail_binfmt::module::{SymbolKind, plain_name};
use guardrail_finding::{Finding, Frame};
use guardrail_host::HostError;
use guardrail_host::drivers;
use guardrail_trace::config::HoldPoint;
use guardrail_vm::prepare::Prepared;
use std::collections::HashMap;

/// The traced modules by name.
pub fn images(prepared: &Prepared) -> Result<HashMap<String, ModuleImage>, HostError> {
    drivers::drivers(prepared)
        .map(|driver| Ok((driver.name.clone(), ModuleImage::parse(&driver.name, driver.bytes.clone())?)))
        .collect()
}

/// The instructions of both sides of a race, or why they cannot be held.
pub fn of(
    finding: &Finding,
    images: &HashMap<String, ModuleImage>,
    pair: u32,
) -> Result<Vec<HoldPoint>, String> {
    let other = finding.other.as_ref().map_or(&[][..], |other| &other.stack);
    let mut points = Vec::new();
    for (role, stack) in (0u8..).zip([&finding.stack[..], other]) {
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
