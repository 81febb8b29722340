//! What is found about a program.

use crate::by_rule::Asked;
use crate::certificate::Certificate;
use guardrail_finding::Finding;

/// What is found about one program.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// Its main function.
    pub main: String,
    /// Its protocols.
    pub protocols: String,
    /// Whether all rules hold.
    pub proved: bool,
    /// Why it is not decided; absent where it is.
    pub undecided: Option<String>,
    /// What breaks a rule.
    pub findings: Vec<Finding>,
    /// A chart of the first one, as SVG.
    pub chart: Option<String>,
    /// Seconds that it took, without compilation.
    pub seconds: f64,
    /// The certificate of a proof.
    pub certificate: Option<Certificate>,
    /// Places of the control skeleton.
    pub places: usize,
    /// States of the last search.
    pub states: usize,
    /// Names of the cells that were followed, without conditions inside expressions.
    pub followed: Vec<String>,
    /// Rounds of refinement.
    pub rounds: u32,
    /// What is taken for granted.
    pub assumptions: Vec<String>,
    /// The obligations of the certificate in SMT-LIB 2, where they were asked for.
    pub script: Option<String>,
    /// A model for Spin, where it was asked for.
    pub model: Option<String>,
    /// What each rule took, where each was decided by itself.
    pub by_rule: Vec<Asked>,
}
