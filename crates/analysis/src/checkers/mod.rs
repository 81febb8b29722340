//! Checkers: each is fed with what the driver did and what the machine knows, and reports findings.

pub mod datacollider;
pub mod dmacheck;
pub mod dmcheck;
pub mod drcheck;
pub mod lockcheck;
pub mod names;
pub mod protocheck;

use crate::checker::Checker;

/// The tools that there are.
pub const TOOLS: &[&str] = &[
    "dmcheck",
    "drcheck",
    "dmacheck",
    "lockcheck",
    "protocheck",
    "datacollider",
    "drcheck:defer",
    "drcheck:klockset",
];

/// The checker for a tool's name.
pub fn by_name(tool: &str) -> Option<Box<dyn Checker>> {
    match tool {
        "dmcheck" => Some(Box::new(dmcheck::DmCheck::default())),
        "dmacheck" => Some(Box::new(dmacheck::DmaCheck::default())),
        "datacollider" => Some(Box::new(datacollider::DataCollider)),
        "drcheck" => Some(Box::new(drcheck::DrCheck::full())),
        "drcheck:defer" => Some(Box::new(drcheck::DrCheck::deferral())),
        "drcheck:klockset" => Some(Box::new(drcheck::DrCheck::lockset())),
        "lockcheck" => Some(Box::new(lockcheck::LockCheck::default())),
        "protocheck" => Some(Box::new(protocheck::ProtoCheck::default())),
        _ => {
            let options = tool.strip_prefix("dmacheck:")?;
            Some(Box::new(dmacheck::DmaCheck::with_options(options)?))
        }
    }
}

/// The checkers for tools that run together; the name of one that does not exist.
pub fn by_names(tools: &[String]) -> Result<Vec<Box<dyn Checker>>, String> {
    let dma = tools.iter().any(|tool| tool.starts_with("dmacheck"));
    let checker = |tool: &String| match tool.as_str() {
        "dmcheck" if dma => Some(Box::new(dmcheck::DmCheck::beside_dmacheck()) as Box<dyn Checker>),
        tool => by_name(tool),
    };
    let mut checkers = tools
        .iter()
        .map(|tool| checker(tool).ok_or_else(|| tool.clone()))
        .collect::<Result<Vec<Box<dyn Checker>>, String>>()?;
    if dma && !tools.iter().any(|tool| tool == "dmcheck") {
        checkers.push(Box::new(dmcheck::DmCheck::for_dmacheck()));
    }
    Ok(checkers)
}
