//! The version of the program.

use std::sync::OnceLock;

/// The version with its commit and the commit's date, as far as the build knew them.
pub fn version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| match env!("GUARDRAIL_COMMIT") {
        "" => env!("CARGO_PKG_VERSION").to_owned(),
        commit => format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
    })
}
