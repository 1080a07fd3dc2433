//! The service `http`: a request a row, or one for several rows.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use http_body_util::Full;
use serde::de::IgnoredAny;
use serde_json::Value;
use tuplane_core::job::{HttpMethod, UsingService, environment_variable};
use tuplane_expr::answer_columns;
use tuplane_expr::arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use tuplane_expr::arrow::datatypes::DataType;

use super::client::{HttpClient, Reply, is_passing};
use super::{Again, Answering, CallError, Service};
use crate::json;

/// Said to servers.
const USER_AGENT: &str = concat!("tuplane/", env!("CARGO_PKG_VERSION"));

/// A stage's requests. The columns of its questions are the address, the body if it has one, and headers.
pub(crate) struct Http {
    client: Arc<HttpClient>,
    method: Method,
    has_body: bool,
    /// One request for several rows, whose bodies make a list.
    batched: bool,
    /// Headers that all requests have.
    fixed: HeaderMap,
    /// Names of those that the questions have.
    by_row: Vec<HeaderName>,
    most: u64,
}

impl Http {
    /// The requests of a stage; the environment is the agent's.
    ///
    /// # Errors
    /// A sentence about a header that cannot be one, or a variable that is not there.
    pub(crate) fn new(using: &UsingService, client: Arc<HttpClient>) -> Result<Self, String> {
        let Some(call) = &using.http else { return Err("it says no request".to_owned()) };
        let mut fixed = HeaderMap::from_iter([(header::USER_AGENT, HeaderValue::from_static(USER_AGENT))]);
        let mut by_row = Vec::new();
        for (name, value) in &call.headers {
            let known = HeaderName::try_from(name.value.as_str())
                .map_err(|_| format!("`{}` cannot name a header", name.value))?;
            match environment_variable(&value.value) {
                None => by_row.push(known),
                Some(variable) => {
                    let value = std::env::var(variable).map_err(|_| {
                        format!(
                            "the header `{}` is read from the variable {variable}, which this agent's environment lacks",
                            name.value
                        )
                    })?;
                    let mut value = HeaderValue::try_from(value).map_err(|_| {
                        format!("the variable {variable} holds what no header `{}` can be", name.value)
                    })?;
                    value.set_sensitive(true);
                    fixed.insert(known, value);
                }
            }
        }
        let method = match call.method {
            HttpMethod::Get => Method::GET,
            HttpMethod::Post => Method::POST,
            HttpMethod::Put => Method::PUT,
            HttpMethod::Patch => Method::PATCH,
            HttpMethod::Delete => Method::DELETE,
        };
        let (batched, most) = (using.batched, using.calls.max_response());
        Ok(Self { client, method, has_body: call.body.is_some(), batched, fixed, by_row, most })
    }

    fn request(&self, question: &RecordBatch) -> Result<Request<Full<Bytes>>, CallError> {
        let url = text(question.column(0), 0).ok_or_else(|| CallError::lasting("`url` is null"))?;
        let uri = address(url)?;
        let mut headers = self.fixed.clone();
        for (position, name) in self.by_row.iter().enumerate() {
            let column = question.column(1 + usize::from(self.has_body) + position);
            // One that is null is left out.
            let Some(value) = text(column, 0) else { continue };
            let value = HeaderValue::from_str(value).map_err(|_| {
                CallError::lasting(format!(
                    "the header `{name}` would hold a line end or another sign that it cannot"
                ))
            })?;
            headers.insert(name.clone(), value);
        }
        let mut body = Bytes::new();
        if self.has_body {
            let (content, kind) = self.body(question.column(1))?;
            body = content;
            headers.entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static(kind));
        }
        let mut request = Request::new(Full::new(body));
        (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) =
            (self.method.clone(), uri, headers);
        Ok(request)
    }

    fn body(&self, column: &ArrayRef) -> Result<(Bytes, &'static str), CallError> {
        const JSON: &str = "application/json";
        if !self.batched && *column.data_type() == DataType::Utf8 {
            let text = text(column, 0).unwrap_or_default().to_owned();
            return Ok((text.into(), "text/plain; charset=utf-8"));
        }
        let values = json::values(column)
            .map_err(|e| CallError::lasting(format!("`body` cannot be written as JSON: {e}")))?;
        let json = if self.batched {
            format!("[{}]", values.join(","))
        } else {
            values.into_iter().next().unwrap_or_else(|| Value::Null.to_string())
        };
        Ok((json.into(), JSON))
    }
}

/// An address. A port that is none would be left out, and the call go to that of the scheme.
fn address(url: &str) -> Result<Uri, CallError> {
    let refuse = |why: String| CallError::lasting(format!("`url` is no address: {why}"));
    let uri = Uri::try_from(url).map_err(|error| refuse(error.to_string()))?;
    let server = uri.authority().map_or("", |authority| authority.as_str());
    // What stands in brackets is an address of IPv6, with colons of its own.
    let behind = server.rsplit_once(']').map_or(server, |(_, behind)| behind);
    if let Some((_, port)) = behind.rsplit_once(':')
        && !port.is_empty()
        && uri.port_u16().is_none()
    {
        return Err(refuse(format!("{port} is no port (1 to 65535)")));
    }
    Ok(uri)
}

impl Service for Http {
    /// Rows with the same address and headers.
    fn fits(&self, question: &RecordBatch, most: usize) -> usize {
        let most = question.num_rows().min(most).max(1);
        let has_body = self.has_body;
        let shared = || {
            let columns = question.columns().iter().enumerate();
            columns.filter(move |(at, _)| !has_body || *at != 1).map(|(_, column)| column)
        };
        let differs = |row: &usize| shared().any(|column| text(column, 0) != text(column, *row));
        (1..most).find(differs).unwrap_or(most)
    }

    fn name(&self, question: &RecordBatch) -> String {
        let uri = text(question.column(0), 0).and_then(|url| Uri::try_from(url).ok());
        // Without user, path and query: those may hold secrets.
        let host = uri.as_ref().and_then(|uri| {
            let host = uri.host()?;
            Some(uri.port_u16().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
        });
        host.map_or_else(|| self.method.to_string(), |host| format!("{} {host}", self.method))
    }

    fn call(&self, question: RecordBatch) -> Answering {
        let request = self.request(&question);
        let (client, most, batched) = (Arc::clone(&self.client), self.most, self.batched);
        async move {
            let reply = client.send(request?, most).await?;
            if is_passing(reply.status) {
                let again = reply.retry_after.map_or(Again::Later, Again::After);
                return Err(CallError {
                    message: format!("it answered with status {}", reply.status),
                    again,
                });
            }
            answers(batched, question.num_rows(), &reply)
        }
        .boxed()
    }
}

/// The answers to so many rows.
fn answers(batched: bool, rows: usize, reply: &Reply) -> Result<RecordBatch, CallError> {
    let text =
        std::str::from_utf8(&reply.body).map_err(|_| CallError::lasting("the answer is no UTF-8 text"))?;
    let responses: StringArray = if batched {
        let values = elements(text).map_err(|e| {
            CallError::lasting(format!("the answer (status {}) is no list in JSON: {e}", reply.status))
        })?;
        if values.len() != rows {
            let came = values.len();
            return Err(CallError::lasting(format!("{rows} rows were sent, and {came} came back")));
        }
        values.into_iter().collect()
    } else {
        vec![text; rows].into()
    };
    let status = Int64Array::from(vec![i64::from(reply.status); rows]);
    let columns: Vec<ArrayRef> = vec![Arc::new(responses), Arc::new(status)];
    RecordBatch::try_new(answer_columns(), columns).map_err(|e| CallError::lasting(e.to_string()))
}

/// The elements of a list in JSON: a text without its quotes, null as none, others as the service has written
/// them, with the digits of their numbers and the order of their keys.
fn elements(list: &str) -> serde_json::Result<Vec<Option<String>>> {
    // The whole is looked at first: what is wrong is then said with its place.
    let count = serde_json::from_str::<Vec<IgnoredAny>>(list)?.len();
    let mut elements = Vec::with_capacity(count);
    let mut rest = list.trim_start().strip_prefix('[').unwrap_or_default();
    for _ in 0..count {
        rest = rest.trim_start();
        let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
        stream.next().transpose()?;
        let (element, behind) = rest.split_at(stream.byte_offset());
        elements.push(match element.as_bytes().first() {
            Some(b'"') => Some(serde_json::from_str(element)?),
            Some(b'n') => None,
            _ => Some(element.to_owned()),
        });
        rest = behind.trim_start().strip_prefix(',').unwrap_or(behind);
    }
    Ok(elements)
}

fn text(column: &ArrayRef, row: usize) -> Option<&str> {
    column.as_string_opt::<i32>().filter(|texts| texts.is_valid(row)).map(|texts| texts.value(row))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_port_that_is_none_is_refused_and_not_left_out() {
        for fine in [
            "http://h:80/x",
            "http://h:65535",
            "http://h/a:99999",
            "http://[::1]:8080/",
            "https://h:/",
            "http://[::1]/",
        ] {
            assert!(address(fine).is_ok(), "{fine}");
        }
        for wrong in
            ["http://127.0.0.1:99999/", "http://h:65536", "http://[::1]:70000/", "http://h:123456789012"]
        {
            assert!(address(wrong).unwrap_err().message.contains("is no address"), "{wrong}");
        }
    }

    #[test]
    fn elements_are_as_they_were_written() {
        let list = r#" [ 12345678901234567890123 , 1.10,{"b": 1, "a":[2, "],"]} ,null,"a\"\u00e9" ,[ ], true,-1e400]
"#;
        let found = elements(list).unwrap();
        let wanted = [
            Some("12345678901234567890123"),
            Some("1.10"),
            Some(r#"{"b": 1, "a":[2, "],"]}"#),
            None,
            Some("a\"é"),
            Some("[ ]"),
            Some("true"),
            Some("-1e400"),
        ];
        assert_eq!(found.iter().map(Option::as_deref).collect::<Vec<_>>(), wanted);
        assert!(elements("[]").unwrap().is_empty());
        for broken in ["", "{}", "[1", "[1,]", "[1 2]", "[1] x", "[\"\\ud800\"]", "[nul]"] {
            assert!(elements(broken).is_err(), "{broken}");
        }
    }

    proptest! {
        #[test]
        fn texts_and_nulls_come_back(texts in prop::collection::vec(prop::option::of(any::<String>()), 0..9)) {
            prop_assert_eq!(elements(&serde_json::to_string(&texts).unwrap()).unwrap(), texts);
        }
    }
}
