//! The search: the product of the control skeleton with the protocols, over the cells that matter.

pub mod exact;
pub mod facts;
pub mod liveness;
pub mod parts;
pub mod ranking;
pub mod refine;
pub mod replay;
pub mod search;
pub mod values;
