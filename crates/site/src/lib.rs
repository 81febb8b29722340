//! Results as web pages: folders of runs and surveys become static HTML, which a small server can show.
//!
//! **Knows**: which files a run and a survey leave in a folder, how pages look and link to each other, and as much of
//! HTTP as a browser on the same machine needs.
//!
//! **Must not know**: how a run is made, how findings are compared or grouped (`guardrail-report` does), the command line.
//!
//! **Entry points**: [`Site::read`] reads a folder, [`Site::page`] makes one page of it, [`write`] writes all of them,
//! and [`Server`] shows them.
//!
//! **Architecture Invariant**: pages are made from parsed results. No name that a browser sends reaches the file system,
//! and no file is sent as it is.
//!
//! **Architecture Invariant**: text from a report or from a file's name reaches a page through
//! [`guardrail_report::html::escaped`] alone: markup is `&'static str`, and everything else is text.
//!
//! **Architecture Invariant**: any bytes in the folder give a page or one sentence, never a panic.

mod error;
mod folder;
mod html;
mod http;
mod names;
mod order;
mod pages;
mod read;
mod server;
mod site;
mod when;
mod written;

pub use error::SiteError;
pub use server::{Port, Server};
pub use site::{Counts, Site};
pub use written::write;

#[cfg(test)]
mod tests;
