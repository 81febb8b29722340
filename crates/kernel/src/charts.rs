//! The charts of all classes, resolved for one kernel.

use crate::summaries::{locks, places, variants};
use guardrail_binfmt::KernelImage;
use guardrail_knowledge::chart::parse::{self, Draft, Rule};
use guardrail_knowledge::chart::{Call, Chart};
use guardrail_knowledge::effect::When;
use std::sync::Arc;

/// All charts, as this kernel has them; rules for functions that it lacks are left out.
pub fn for_image(image: &KernelImage) -> Arc<[Chart]> {
    parse::built_in().map(|draft| resolve(image, draft)).collect()
}

fn resolve(image: &KernelImage, draft: Draft) -> Chart {
    let Draft { mut chart, rules, turns, elsewhere } = draft;
    for (callback, params, by) in &turns {
        let arg = |name: &str| params.iter().position(|param| param == name).map(|place| place as u8);
        chart.callbacks[*callback].turns = locks::key(image.btf(), &arg, by);
    }
    for rule in &rules {
        let plain = &rule.function;
        let known = variants(image, plain);
        let found = !known.is_empty();
        chart.calls.extend(known.into_iter().map(|(name, _)| call(image, rule, name)));
        // The image says nothing about functions of modules.
        if !found && elsewhere {
            chart.calls.push(call(image, rule, plain.clone()));
        }
    }
    chart
}

fn call(image: &KernelImage, rule: &Rule, function: String) -> Call {
    let params: Vec<&str> = rule.params.iter().map(String::as_str).collect();
    let places = places(image, &function, &params);
    let arg = |name: &str| places.iter().find(|(known, _)| *known == name).map(|(_, place)| *place);
    let keys = rule.keys.iter().map(|key| locks::key(image.btf(), &arg, key.as_deref()?)).collect();
    let narrow = image.btf().func_proto(&function).is_some_and(|proto| locks::is_narrow(&proto.result));
    let when = rule.when.and_then(|word| When::named(word, narrow)).unwrap_or_default();
    let Rule { from, to, nowait, wakes, waits, hand, .. } = *rule;
    Call { function, keys, when, from, to, nowait, wakes, waits, hand }
}
