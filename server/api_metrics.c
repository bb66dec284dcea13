/* /metrics: counters in the text form of Prometheus, with llama.cpp's names where it has them. */
#include "api_server.h"

#include "base/decimal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct metric {
    const char *name, *type, *help;
    double (*value)(const struct api_model *model, const struct salvo_scheduler_counters *counters);
};

#define COUNTER(function, expression)                                                                      \
    static double function(const struct api_model *model, const struct salvo_scheduler_counters *counters) \
    {                                                                                                      \
        (void)model;                                                                                       \
        (void)counters;                                                                                    \
        return (double)(expression);                                                                       \
    }

COUNTER(prompt_tokens, counters->prompt_tokens)
COUNTER(cached_tokens, counters->cached_tokens)
COUNTER(prompt_seconds, model->prompt_seconds)
COUNTER(tokens, counters->tokens)
COUNTER(answer_seconds, model->answer_seconds)
COUNTER(steps, counters->steps)
COUNTER(running, counters->running)
COUNTER(waiting, counters->waiting)
COUNTER(paused, counters->paused)
COUNTER(submitted, counters->submitted)
COUNTER(refused, counters->refused)
COUNTER(finished, counters->finished)
COUNTER(failed, counters->failed)
COUNTER(cancelled, counters->cancelled)
COUNTER(failures, model->failures)
COUNTER(prompt_rate, model->prompt_seconds > 0 ? (double)counters->prompt_tokens / model->prompt_seconds : 0)
COUNTER(answer_rate, model->answer_seconds > 0 ? (double)counters->tokens / model->answer_seconds : 0)

static const struct metric metrics[] = {
    {"llamacpp:prompt_tokens_total", "counter", "prompt tokens computed", prompt_tokens},
    {"llamacpp:prompt_tokens_cached_total", "counter", "prompt tokens that were not computed again",
        cached_tokens},
    {"llamacpp:prompt_seconds_total", "counter", "time from session to first token", prompt_seconds},
    {"llamacpp:tokens_predicted_total", "counter", "tokens generated", tokens},
    {"llamacpp:tokens_predicted_seconds_total", "counter", "time from first to last token", answer_seconds},
    {"llamacpp:n_decode_total", "counter", "steps of the device", steps},
    {"llamacpp:prompt_tokens_seconds", "gauge", "average prompt tokens a second", prompt_rate},
    {"llamacpp:predicted_tokens_seconds", "gauge", "average tokens generated a second", answer_rate},
    {"llamacpp:requests_processing", "gauge", "requests that have a session", running},
    {"llamacpp:requests_deferred", "gauge", "requests that wait for a session", waiting},
    {"salvo:requests_paused", "gauge", "requests whose reader is slower than the model", paused},
    {"salvo:requests_submitted_total", "counter", "requests accepted", submitted},
    {"salvo:requests_refused_total", "counter", "requests refused", refused},
    {"salvo:requests_finished_total", "counter", "requests that ended well", finished},
    {"salvo:requests_failed_total", "counter", "requests that failed", failed},
    {"salvo:requests_cancelled_total", "counter", "requests cancelled", cancelled},
    {"salvo:device_failures_total", "counter", "the engine was opened again after the device failed",
        failures},
};

static bool add(struct buffer *out, const char *text)
{
    return buffer_append(out, text, strlen(text)) == SALVO_OK;
}

static bool add_head(struct buffer *out, const char *name, const char *type, const char *help)
{
    char line[256];
    snprintf(line, sizeof line, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
    return add(out, line);
}

/* Label values escape backslash, quote and newline. */
static bool add_label(struct buffer *out, const char *value)
{
    bool ok = add(out, "{model=\"");
    for (; ok && *value; value++) {
        if (*value == '\n')
            ok = add(out, "\\n");
        else
            ok = (*value != '\\' && *value != '"' ? true : add(out, "\\")) &&
                 buffer_append(out, value, 1) == SALVO_OK;
    }
    return ok && add(out, "\"}");
}

static bool add_value(struct buffer *out, double value)
{
    char text[DECIMAL_TEXT];
    return add(out, " ") && add(out, decimal_format(value, false, text)) && add(out, "\n");
}

static bool write_models(const struct api_server *server, struct buffer *out)
{
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof metrics / sizeof *metrics; i++) {
        ok = add_head(out, metrics[i].name, metrics[i].type, metrics[i].help);
        for (size_t k = 0; ok && k < server->model_count; k++) {
            const struct api_model *model = &server->models[k];
            if (atomic_load(&model->state) != API_MODEL_READY && !model->failures)
                continue; /* was never ready */
            const struct salvo_scheduler_counters counters = api_model_counters(model);
            ok = add(out, metrics[i].name) && (server->model_count == 1 || add_label(out, model->id)) &&
                 add_value(out, metrics[i].value(model, &counters));
        }
    }
    return ok;
}

static bool write_http(const struct api_server *server, struct buffer *out)
{
    const struct http_counters now = http_server_counters(server->http);
    const struct {
        const char *name, *type, *help;
        uint64_t value;
    } list[] = {
        {"salvo:http_connections", "gauge", "open connections", now.connections},
        {"salvo:http_connections_total", "counter", "connections accepted", now.accepted},
        {"salvo:http_requests_total", "counter", "requests", now.requests},
        {"salvo:http_bad_requests_total", "counter", "requests that were no HTTP or beyond a limit",
            now.bad_requests},
        {"salvo:http_unsent_bytes", "gauge", "bytes that clients have not taken yet", now.unsent_bytes},
        {"salvo:http_unsent_bytes_most", "gauge", "the most of one connection", now.unsent_most},
        {"salvo:http_received_bytes", "gauge", "bytes of requests that are not complete or wait",
            now.received_bytes},
        {"salvo:http_buffered_bytes_most", "gauge", "the most of one connection while it is answered",
            now.buffered_most},
    };
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof list / sizeof *list; i++)
        ok = add_head(out, list[i].name, list[i].type, list[i].help) && add(out, list[i].name) &&
             add_value(out, (double)list[i].value);
    return ok;
}

void api_get_metrics(struct api_server *server, struct http_exchange *exchange)
{
    struct buffer out = {0};
    struct http_header headers[API_HEADERS];
    struct api_error error;
    char started[24];
    if (!server->metrics) {
        api_fail(&error, 501, NULL, "the server was started without --metrics");
        api_reply_error(server, exchange, &error);
        return;
    }
    if (write_models(server, &out) && write_http(server, &out)) {
        api_headers(server, exchange, "text/plain; version=0.0.4; charset=utf-8", headers);
        snprintf(started, sizeof started, "%" PRId64, server->started);
        api_add_header(headers, "Process-Start-Time-Unix", started);
        http_reply(exchange, 200, headers, out.data, out.size);
    } else {
        api_fail(&error, 503, NULL, "not enough memory for the answer");
        api_reply_error(server, exchange, &error);
    }
    buffer_free(&out);
}
