import type { DlqEntry } from "@tenure/protocol";
import { useMemo, useState } from "preact/hooks";
import { call } from "../api.ts";
import { duration } from "../model/time.ts";
import { Action } from "../parts/action.tsx";
import { Chip } from "../parts/badge.tsx";
import { Id } from "../parts/id.tsx";
import { Card } from "../parts/page.tsx";
import { Empty, Failure, Loading, Stale } from "../parts/states.tsx";
import { Text } from "../parts/text.tsx";
import { Time } from "../parts/time.tsx";
import { createResource } from "../resource.ts";
import { JobLink } from "./links.tsx";

const PAGE_LIMIT = 100;

/** Messages between instances that could not be processed. */
export function DeadLetters({ hasRedis }: { hasRedis: boolean }) {
  const [pages, setPages] = useState(1);
  const letters = useMemo(
    () => createResource({ read: () => readPages(pages), everyMs: 10_000 }),
    [pages],
  );
  const { value, error } = letters.use();
  return (
    <Card
      title="Dead letters"
      side={value && `${value.items.length}${value.isMore ? "+" : ""}`}
      flush
    >
      <Stale error={value && error} />
      {value ? (
        value.items.length === 0 ? (
          <Empty title="No dead letters">
            <p>
              {hasRedis
                ? "All messages between instances were processed."
                : "Without Redis, instances send no messages."}
            </p>
          </Empty>
        ) : (
          <ul class="letters">
            {value.items.map((letter) => (
              <Letter key={letter.id} letter={letter} onDone={letters.refresh} />
            ))}
          </ul>
        )
      ) : error ? (
        <Failure error={error} retry={letters.refresh} />
      ) : (
        <Loading what="dead letters" />
      )}
      {value?.isMore && (
        <p class="more">
          <button type="button" class="button" onClick={() => setPages(pages + 1)}>
            Show more
          </button>
        </p>
      )}
    </Card>
  );
}

async function readPages(pages: number): Promise<{ items: DlqEntry[]; isMore: boolean }> {
  const items: DlqEntry[] = [];
  let cursor: string | undefined;
  for (let page = 0; page < pages; page++) {
    const { items: more, next_cursor } = await call("listDlq", {
      query: { limit: PAGE_LIMIT, cursor },
    });
    items.push(...more);
    cursor = next_cursor ?? undefined;
    if (cursor === undefined) break;
  }
  return { items, isMore: cursor !== undefined };
}

function Letter({ letter, onDone }: { letter: DlqEntry; onDone: () => Promise<void> }) {
  const { id, reason, deliveries, age_ms, moved_at, kind, job_id, attempt_id, bytes } = letter;
  const params = { id };
  return (
    <li class="letter">
      <details>
        <summary>
          <Chip tone="warn">{reason}</Chip>
          <span class="grow">
            {kind ? <Text>{kind}</Text> : "not readable"}
            {attempt_id !== undefined && <span class="quiet"> · attempt {attempt_id}</span>}
          </span>
          <span class="quiet number">
            <Time at={moved_at} />
          </span>
        </summary>
        <dl class="facts">
          <div class="fact">
            <dt>Letter</dt>
            <dd>
              <Id of={id} whole />
            </dd>
          </div>
          <div class="fact">
            <dt>Job</dt>
            <dd>{job_id ? <JobLink id={job_id} /> : "–"}</dd>
          </div>
          <div class="fact">
            <dt>Deliveries</dt>
            <dd class="number">{deliveries}</dd>
          </div>
          <div class="fact">
            <dt>Age when moved</dt>
            <dd class="number">{duration(age_ms)}</dd>
          </div>
        </dl>
        <pre class="code">
          <Text>{textOf(bytes)}</Text>
        </pre>
      </details>
      <div class="letter-actions">
        <Action
          label="Redrive"
          small
          title="Send this message again?"
          done="The message was sent again"
          onDo={async () => {
            await call("redriveDlq", { params });
            await onDone();
          }}
        >
          <p>The message goes to the instance of its target, with a new deadline.</p>
        </Action>
        <Action
          label="Discard"
          small
          danger
          title="Discard this message?"
          done="The message was discarded"
          onDo={async () => {
            await call("discardDlq", { params });
            await onDone();
          }}
        >
          <p>The message is deleted permanently. The job's record is not affected.</p>
        </Action>
      </div>
    </li>
  );
}

/** The bytes as text; invalid characters are shown as marks. */
function textOf(base64: string): string {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  return new TextDecoder().decode(bytes);
}
