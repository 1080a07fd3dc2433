//! What a service call needs to run.

use crate::fault::Fault;
use crate::job::model::{HttpCall, HttpMethod, Stage, StatefulShape, UsingService};

/// What is missing of it.
pub(super) fn needs(stage: &Stage, using: &UsingService, faults: &mut Vec<Fault>) {
    let mut missing = |key: &str, help: &str| {
        let message = format!("stage `{}` ({}) has no `{key}`", stage.id, using.op_name());
        faults.push(Fault::new(stage.at, message).help(help));
    };
    if using.service.is_none() {
        missing("service", "say what is called: service = \"http\", or one that the agents' registry holds");
        return;
    }
    if using.http.as_ref().is_some_and(|http| http.url.is_none()) {
        missing("url", "say what is asked, as an expression: \"'http://host/items/' || id\"");
    }
    if using.then.is_empty() {
        let help = match using.shape {
            StatefulShape::Map => "say the row it makes: [\"*\", \"response as name\"]",
            StatefulShape::Filter => "say which rows it keeps: \"status = 200\"",
            StatefulShape::FlatMap => "say the list to unfold: \"string_to_array(response, ',') as item\"",
        };
        missing(using.shape.option(), help);
    }
    if let Some(http) = &using.http {
        body(stage, using, http, faults);
    }
}

/// Whether the method and the body go together.
fn body(stage: &Stage, using: &UsingService, http: &HttpCall, faults: &mut Vec<Fault>) {
    match &http.body {
        Some(body) if http.method == HttpMethod::Get => {
            let fault = Fault::new(body.at, format!("stage `{}` sends a `body` with GET", stage.id));
            faults.push(fault.help("set method = \"POST\", or take `body` away"));
        }
        None if using.batched => {
            let message = format!("stage `{}` sends several rows at once, and has no `body`", stage.id);
            let help = "set `body` to what each row gives, and method = \"POST\"; or take `batched` away";
            faults.push(Fault::new(stage.at, message).help(help));
        }
        _ => {}
    }
}
