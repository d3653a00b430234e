import { useState } from "preact/hooks";
import { call } from "../api.ts";
import { isOfAllTenants } from "../data.ts";
import { Dialog } from "../parts/dialog.tsx";
import { TextField } from "../parts/fields.tsx";
import { go } from "../router.ts";

/** Submits a test job. */
export function JobForm({ pools, onClose }: { pools: string[]; onClose: () => void }) {
  const needsTenant = isOfAllTenants();
  const [tenant, setTenant] = useState("");
  const [pool, setPool] = useState(pools[0] ?? "");
  const [payload, setPayload] = useState('{ "hello": "world" }');
  const [service, setService] = useState("");
  const [priority, setPriority] = useState("");
  const [timeout, setTimeout] = useState("");
  const parsed = parse(payload);
  return (
    <Dialog
      title="Submit a job"
      verb="Submit"
      isReady={pool !== "" && parsed.ok && !(needsTenant && tenant === "")}
      onClose={onClose}
      onDo={async () => {
        const job = await call("submitJob", {
          query: { tenant },
          body: {
            request_id: `console-${crypto.randomUUID?.() ?? Date.now()}`,
            pool,
            payload: parsed.value,
            ...(service && { service }),
            ...(priority && { priority: Number(priority) }),
            ...(timeout && { timeout_ms: Math.round(Number(timeout) * 1_000) }),
          },
        });
        go(`/jobs/${job.job_id}`);
      }}
    >
      <div class="form">
        {needsTenant && (
          <TextField
            label="Tenant"
            hint="Only nodes that serve this tenant run it."
            value={tenant}
            onChange={setTenant}
            required
            mono
          />
        )}
        <TextField
          label="Pool"
          value={pool}
          onChange={setPool}
          hint={
            pools.length > 0 ? `Pools: ${pools.slice(0, 8).join(", ")}` : "No node serves a pool."
          }
          mono
        />
        <TextField
          label="Payload"
          hint={parsed.ok ? "Any JSON." : `Not JSON: ${parsed.problem}`}
          value={payload}
          onChange={setPayload}
          lines={5}
          mono
        />
        <div class="form-pair">
          <TextField
            label="Priority"
            value={priority}
            onChange={setPriority}
            placeholder="0 to 9"
          />
          <TextField
            label="Time limit in seconds"
            value={timeout}
            onChange={setTimeout}
            placeholder="30"
          />
        </div>
        <TextField
          label="Service"
          value={service}
          onChange={setService}
          placeholder="service that the node must offer"
          mono
        />
      </div>
    </Dialog>
  );
}

function parse(
  text: string,
): { ok: true; value: unknown; problem: "" } | { ok: false; value: undefined; problem: string } {
  try {
    return { ok: true, value: JSON.parse(text), problem: "" };
  } catch (error) {
    return { ok: false, value: undefined, problem: (error as Error).message };
  }
}
