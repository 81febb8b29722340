//! The clients that come with Guardrail, in one plugin.

mod null;

guardrail_client::clients!(null::Null);
