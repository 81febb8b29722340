//! YAML as JSON values, in which each scalar is a string.

use saphyr_parser::{Event, Parser};
use serde_json::{Map, Value};
use std::path::Path;

/// Reads a file with one document.
pub fn read(path: &Path) -> Result<Value, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    parse(&text).map_err(|why| format!("{}: {why}", path.display()))
}

/// Parses one document, without anchors.
pub fn parse(text: &str) -> Result<Value, String> {
    let mut events = Vec::new();
    for event in Parser::new_from_str(text) {
        events.push(event.map_err(|error| error.to_string())?.0);
    }
    let mut events: Box<Rest<'_>> = Box::new(events.into_iter().filter(|event| {
        !matches!(event, Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd)
    }));
    let first = events.next().ok_or("it is empty")?;
    let value = node(first, &mut *events)?;
    match events.next() {
        None => Ok(value),
        Some(more) => Err(format!("more than one document: {more:?}")),
    }
}

/// The events of a document that are not read yet.
type Rest<'a> = dyn Iterator<Item = Event<'a>> + 'a;

fn next<'a>(rest: &mut Rest<'a>) -> Result<Event<'a>, String> {
    rest.next().ok_or_else(|| "it ends too early".to_owned())
}

fn node<'a>(event: Event<'a>, rest: &mut Rest<'a>) -> Result<Value, String> {
    match event {
        Event::Scalar(text, ..) => Ok(Value::String(text.into_owned())),
        Event::SequenceStart(..) => {
            let mut all = Vec::new();
            loop {
                match next(rest)? {
                    Event::SequenceEnd => return Ok(Value::Array(all)),
                    other => all.push(node(other, rest)?),
                }
            }
        }
        Event::MappingStart(..) => {
            let mut all = Map::new();
            loop {
                let name = match next(rest)? {
                    Event::MappingEnd => return Ok(Value::Object(all)),
                    Event::Scalar(name, ..) => name.into_owned(),
                    other => return Err(format!("{other:?} is no name")),
                };
                let event = next(rest)?;
                let value = node(event, rest)?;
                if all.insert(name.clone(), value).is_some() {
                    return Err(format!("'{name}' is there twice"));
                }
            }
        }
        other => Err(format!("{other:?} is not expected")),
    }
}
