//! What the functions of a driver call and write, without regard to order.

pub mod effects;
pub mod flow;

/// A function of the driver: the index of its file, and its name.
pub type Function = (usize, std::rc::Rc<str>);
