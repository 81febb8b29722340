//! `null`: sees every block and does nothing. Its cost is the cost of instrumentation itself.

use guardrail_client_api::{Block, Client, Results, Setup};

/// The `null` client.
pub struct Null;

impl Client for Null {
    const NAME: &'static str = "null";

    fn new(setup: &mut Setup) -> Result<Self, String> {
        setup.only(&[])?;
        Ok(Null)
    }

    fn block(&'static self, _: &mut Block<Self>) {}

    fn results(&'static self, _: &mut Results) {}
}
