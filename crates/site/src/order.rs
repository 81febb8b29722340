//! The orders in which the index lists runs.

/// The order of runs. Each has a page of its own, so that no script is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Newest,
    Driver,
    Kernel,
    Verdict,
    Findings,
    Duration,
}

impl Order {
    pub(crate) const ALL: [Order; 6] =
        [Order::Newest, Order::Driver, Order::Kernel, Order::Verdict, Order::Findings, Order::Duration];

    /// The address of the page.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Order::Newest => "index.html",
            Order::Driver => "by-driver.html",
            Order::Kernel => "by-kernel.html",
            Order::Verdict => "by-verdict.html",
            Order::Findings => "by-findings.html",
            Order::Duration => "by-duration.html",
        }
    }

    /// The word of the link to it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Order::Newest => "newest",
            Order::Driver => "driver",
            Order::Kernel => "kernel",
            Order::Verdict => "verdict",
            Order::Findings => "most findings",
            Order::Duration => "longest",
        }
    }
}
