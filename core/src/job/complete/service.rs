//! What a service call needs to run.

use crate::fault::{Fault, suggestion};
use crate::job::model::{HTTP, HttpCall, HttpMethod, Stage, StatefulShape, UsingService};

/// What is missing of it.
pub(super) fn needs(stage: &Stage, using: &UsingService, faults: &mut Vec<Fault>) {
    let mut missing = |key: &str, help: &str| {
        let message = format!("stage `{}` ({}) has no `{key}`", stage.id, using.op_name());
        faults.push(Fault::new(stage.at, message).help(help));
    };
    let Some(name) = &using.service else {
        missing("service", "say what is called: service = \"http\"");
        return;
    };
    let Some(http) = &using.http else {
        let hint = suggestion(&name.value, [HTTP])
            .map_or_else(String::new, |known| format!("; did you mean `{known}`?"));
        let fault = Fault::new(name.at, format!("there is no service `{}`{hint}", name.value));
        faults.push(fault.help(format!("one of: {HTTP}; services of your own come later")));
        return;
    };
    if http.url.is_none() {
        missing("url", "say what is asked, as an expression: \"'http://host/items/' || id\"");
    }
    if using.then.is_empty() {
        match using.shape {
            StatefulShape::Map => missing("select", "say the row it makes: [\"*\", \"response as name\"]"),
            StatefulShape::Filter => missing("where", "say which rows it keeps: \"status = 200\""),
            StatefulShape::FlatMap => {
                missing("unnest", "say the list to unfold: \"string_to_array(response, ',') as item\"");
            }
        }
    }
    body(stage, using, http, faults);
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
