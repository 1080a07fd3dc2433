//! Reads the options of service calls.

use super::ON_ERROR;
use super::op::{list, preferred};
use crate::fault::{Fault, Spanned};
use crate::job::model::{
    BATCH_ROWS, Calls, HTTP, HttpCall, HttpMethod, MAX_RESPONSE, Op, StatefulShape, USER_IN_URL, UsingService,
};
use crate::job::table::Table;
use crate::job::tree::Value;

/// How a service is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Blocking,
    Async,
}

/// `map_using_service` and its kin.
pub(super) fn read(table: &mut Table<'_>, shape: StatefulShape, form: Form) -> Op {
    let asynchronous = form == Form::Async;
    let batched = asynchronous && table.flag("batched").unwrap_or_default();
    let service = table.text("service");
    let is_http = service.as_ref().is_some_and(|name| name.value == HTTP);
    Op::UsingService(UsingService {
        shape,
        asynchronous,
        batched,
        // The built-in one has its options beside `service`.
        with: if is_http { serde_json::Value::Object(serde_json::Map::new()) } else { table.with() },
        http: is_http.then(|| http(table)),
        args: if is_http { Vec::new() } else { list(table, "args") },
        then: list(table, shape.option()),
        calls: calls(table, asynchronous, batched),
        cooperative: table.flag("cooperative").unwrap_or(true),
        preferred_parallelism: preferred(table),
        service,
    })
}

fn calls(table: &mut Table<'_>, asynchronous: bool, batched: bool) -> Calls {
    let mut calls = Calls {
        timeout: table.positive_duration("timeout"),
        retries: table.whole_u32("retries", 0..=100),
        on_error: table.choice("on_error", &ON_ERROR),
        max_response: table
            .node("max_response")
            .and_then(|_| table.size_within("max_response", (1, "1 byte"), (MAX_RESPONSE, "16MiB"))),
        ..Calls::default()
    };
    if asynchronous {
        calls.concurrency = table.whole_u32("concurrency", 1..=10_000);
        calls.preserve_order = table.flag("preserve_order");
    }
    if batched {
        calls.batch = table.whole_u32("batch", 1..=BATCH_ROWS);
    }
    calls
}

fn http(table: &mut Table<'_>) -> HttpCall {
    let method = table.choice("method", &HttpMethod::ALL).unwrap_or_default();
    let mut headers = Vec::new();
    if let Some(mut inner) = table.table("headers") {
        for entry in inner.entries() {
            let name = &entry.key;
            if !is_header_name(&name.value) {
                let message = format!("`{}` cannot name a header", name.value.escape_debug());
                let help = "letters, digits and -, such as Content-Type";
                inner.fault(Fault::new(name.at, message).help(help));
            } else if FRAMING.iter().any(|framing| name.value.eq_ignore_ascii_case(framing)) {
                let message = format!("the header `{}` is the agent's to write", name.value);
                let help = "take it away: it follows from `url`, `body` and the connection";
                inner.fault(Fault::new(name.at, message).help(help));
            } else if let Some((known, _)) = headers
                .iter()
                .find(|(known, _): &&(Spanned<String>, _)| known.value.eq_ignore_ascii_case(&name.value))
            {
                let message = format!("`{}` and `{}` name the same header", known.value, name.value);
                let help =
                    "names of headers are the same in capitals and small letters: take one of them away";
                inner.fault(Fault::new(name.at, message).help(help));
            }
            match &entry.node.value {
                Value::Text(text) if !text.trim().is_empty() => {
                    headers.push((name.clone(), Spanned::new(text.clone(), entry.node.at)));
                }
                _ => {
                    let message = format!("the header `{}` needs a text", name.value);
                    let help = "an expression such as \"'application/json'\", or \"env:NAME\" for a variable of the agent's";
                    inner.fault(Fault::new(entry.node.at, message).help(help));
                }
            }
        }
        // The keys were the user's own, so nothing in this table is unknown.
        table.close_open(inner);
    }
    let url = table.text("url");
    if let Some(url) = url.as_ref().filter(|url| names_user(&url.value)) {
        table.fault(Fault::new(url.at, "`url` names a user before `@`").help(USER_IN_URL));
    }
    if let Some(url) = url.as_ref().filter(|url| is_no_address(&url.value)) {
        let message = format!("`url` is `{}`, which is no address", url.value.trim());
        let help = "it begins with http:// or https://: \"'http://host/items/' || id\"";
        table.fault(Fault::new(url.at, message).help(help));
    }
    HttpCall { url, method, body: table.text("body"), headers }
}

/// Headers that say where a request goes, where its body ends and what becomes of the connection (RFC 9110 and
/// 9112). From a row they could make one request look like two.
const FRAMING: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The constant text that an expression begins with, and what follows it.
fn constant(expression: &str) -> Option<(&str, &str)> {
    expression.trim_start().strip_prefix('\'').and_then(|text| text.split_once('\''))
}

/// It begins with a constant of another scheme, or is a constant without one.
fn is_no_address(expression: &str) -> bool {
    let Some((text, rest)) = constant(expression) else { return false };
    match text.split_once("://") {
        Some((scheme, _)) => !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)),
        None => rest.trim().is_empty(),
    }
}

/// It begins with a constant address that has a user. Others are seen when they are asked.
fn names_user(expression: &str) -> bool {
    let constant = constant(expression).map(|(text, _)| text);
    let after = constant.and_then(|url| url.split_once("://")).map(|(_, after)| after);
    after.and_then(|after| after.split(['/', '?', '#']).next()).is_some_and(|server| server.contains('@'))
}

/// A token of RFC 9110, section 5.6.2.
fn is_header_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// A word on a key that belongs to another form, or to another service.
pub(super) fn belongs(service: &UsingService, key: &str) -> Option<String> {
    let sentence = match key {
        "concurrency" | "preserve_order" | "batched" => {
            format!("`{key}` belongs to the async form, `{}_async`", service.op_name())
        }
        "batch" => "`batch` belongs to the async form with batched = true".to_owned(),
        "with" => "the options of service = \"http\" stand beside `service`".to_owned(),
        "args" => "`args` belongs to a service of a registry; `http` has url, body and headers".to_owned(),
        "url" | "method" | "body" | "headers" => match &service.service {
            Some(name) => format!(
                "`{key}` belongs to service = \"http\", the only one that is built in; `{}` would be of an agent's registry, and takes its options in `with`",
                name.value
            ),
            None => format!("`{key}` belongs to service = \"http\"; this stage has no `service`"),
        },
        "select" | "where" | "unnest" => {
            format!("`{}` says `{}`", service.op_name(), service.shape.option())
        }
        _ => return None,
    };
    Some(sentence)
}
