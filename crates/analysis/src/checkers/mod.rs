//! Checkers: each gets what the driver did and what the machine's state is, and reports findings.

pub mod aftermath;
pub mod datacollider;
pub mod dmacheck;
pub mod dmcheck;
pub mod drcheck;
pub mod lockcheck;
pub mod members;
pub mod names;
pub mod protocheck;

use crate::checker::Checker;

/// A row of the table of tools: a checker with its options.
pub struct Tool {
    /// The tool's name on the command line.
    pub name: &'static str,
    /// What the tool finds, for lists and help.
    pub about: &'static str,
    /// The names that stand for this tool and others.
    pub groups: &'static [&'static str],
    /// Makes the tool's checker.
    make: fn() -> Box<dyn Checker>,
}

/// The tools, in the order in which lists show them. The group `quiet` has no DRCheck, since all
/// drivers have races that do no harm.
pub const TOOLS: &[Tool] = &[
    Tool {
        name: "dmcheck",
        about: "memory faults: use after free, out of bounds, double and invalid free, leaks, uninitialized values, wild accesses",
        groups: &["all", "quiet"],
        make: || Box::new(dmcheck::DmCheck::default()),
    },
    Tool {
        name: "drcheck",
        about: "data races between threads, softirqs and interrupts",
        groups: &["all"],
        make: || Box::new(drcheck::DrCheck::full()),
    },
    Tool {
        name: "dmacheck",
        about: "DMA faults: buffers used while the device has them, leaks, wrong unmaps and syncs; dmacheck:line=64 also tells buffers that share cache lines",
        groups: &["all", "quiet"],
        make: || Box::new(dmacheck::DmaCheck::default()),
    },
    Tool {
        name: "lockcheck",
        about: "locks: order, interrupts, taken twice, held at return, sleeping under them",
        groups: &["all", "quiet"],
        make: || Box::new(lockcheck::LockCheck::default()),
    },
    Tool {
        name: "protocheck",
        about: "protocols of kernel objects: calls in the wrong state, requests never completed",
        groups: &["all", "quiet"],
        make: || Box::new(protocheck::ProtoCheck::default()),
    },
    Tool {
        name: "datacollider",
        about: "data races that happen while accesses picked by chance are held; finds few, is never wrong",
        groups: &[],
        make: || Box::new(datacollider::DataCollider),
    },
    Tool {
        name: "drcheck:defer",
        about: "drcheck without device states and atomics, to measure what they are worth",
        groups: &[],
        make: || Box::new(drcheck::DrCheck::deferral()),
    },
    Tool {
        name: "drcheck:klockset",
        about: "the lockset algorithm alone, as above",
        groups: &[],
        make: || Box::new(drcheck::DrCheck::lockset()),
    },
];

/// The names of all tools, in the order of [`TOOLS`].
pub fn names_of_tools() -> impl Iterator<Item = &'static str> + Clone {
    TOOLS.iter().map(|tool| tool.name)
}

/// The tools of a group; the name itself where it is no group.
pub fn members(name: &str) -> Vec<&str> {
    let members: Vec<_> =
        TOOLS.iter().filter(|tool| tool.groups.contains(&name)).map(|tool| tool.name).collect();
    if members.is_empty() { vec![name] } else { members }
}

/// The checker for a tool's name; options may follow `dmacheck:`. `None` where there is no such tool.
pub fn by_name(name: &str) -> Option<Box<dyn Checker>> {
    if let Some(tool) = TOOLS.iter().find(|tool| tool.name == name) {
        return Some((tool.make)());
    }
    if name == aftermath::NAME {
        return Some(Box::<aftermath::Aftermath>::default());
    }
    let options = name.strip_prefix("dmacheck:")?;
    Some(Box::new(dmacheck::DmaCheck::with_options(options)?))
}

/// The checkers for tools that run together. The error is the name of a tool that does not exist.
pub fn by_names(tools: &[String]) -> Result<Vec<Box<dyn Checker>>, String> {
    let dma = tools.iter().any(|tool| tool.starts_with("dmacheck"));
    let checker = |tool: &String| match tool.as_str() {
        "dmcheck" if dma => Some(Box::new(dmcheck::DmCheck::beside_dmacheck()) as Box<dyn Checker>),
        tool => by_name(tool),
    };
    tools.iter().map(|tool| checker(tool).ok_or_else(|| tool.clone())).collect()
}
