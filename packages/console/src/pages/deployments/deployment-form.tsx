import type { DeploymentCreate } from "@tenure/protocol";
import { useState } from "preact/hooks";
import { changesOf, type Draft, EMPTY_DRAFT, problemOf } from "../../model/spec.ts";
import { Dialog } from "../../parts/dialog.tsx";
import { RadioField, TextField } from "../../parts/fields.tsx";

/** Creates or changes a specification. Sends only changed fields. */
export function DeploymentForm({
  title,
  verb,
  before,
  needsTenant = false,
  onSave,
  onClose,
}: {
  title: string;
  verb: string;
  before?: Draft;
  /** Whether the caller has to name the tenant of a new deployment. */
  needsTenant?: boolean;
  onSave: (changes: DeploymentCreate) => Promise<void>;
  onClose: () => void;
}) {
  const [draft, setDraft] = useState<Draft>(before ?? EMPTY_DRAFT);
  const set = (field: keyof Draft) => (value: string) => setDraft({ ...draft, [field]: value });
  const problem = problemOf(draft, { needsTenant });
  const isTouched = JSON.stringify(draft) !== JSON.stringify(before ?? EMPTY_DRAFT);
  return (
    <Dialog
      title={title}
      verb={verb}
      isReady={problem === undefined && isTouched}
      onDo={() => onSave(changesOf(draft, before))}
      onClose={onClose}
    >
      <div class="form">
        {needsTenant && (
          <TextField
            label="Tenant"
            hint="Only nodes that serve this tenant run it."
            value={draft.tenant}
            onChange={set("tenant")}
            required
            mono
          />
        )}
        <TextField
          label="Name"
          value={draft.name}
          onChange={set("name")}
          placeholder="default: its id"
          mono
        />
        <RadioField
          label="Type"
          value={draft.type}
          onChange={set("type")}
          of={[
            { value: "deployment", label: "Deployment", hint: "runs on one node at a time" },
            { value: "daemon", label: "Daemon", hint: "runs on every node" },
          ]}
        />
        <div class="form-pair">
          <TextField
            label="Package"
            value={draft.package_name}
            onChange={set("package_name")}
            placeholder="@acme/web"
            mono
          />
          <TextField
            label="Version"
            value={draft.package_version}
            onChange={set("package_version")}
            placeholder="1.4.2"
            mono
          />
        </div>
        <TextField
          label="Command"
          hint="Instead of a package. Runs only on nodes that allow commands."
          value={draft.command}
          onChange={set("command")}
          mono
        />
        <TextField
          label="Arguments"
          hint="One per line."
          value={draft.args}
          onChange={set("args")}
          lines={2}
          mono
        />
        <TextField
          label="Environment"
          hint='NAME=value, one per line. The value of a secret: NAME={"secret":"name"}'
          value={draft.env}
          onChange={set("env")}
          lines={3}
          mono
        />
        <TextField
          label="Selector"
          hint="Required node labels: name=value, one per line. Empty: any node."
          value={draft.selector}
          onChange={set("selector")}
          lines={2}
          mono
        />
        <TextField
          label="Seconds before it moves"
          hint="How long a lost node keeps it. 0: it moves at once. 40 or more: two copies never run at the same time."
          value={draft.lost_after_s}
          onChange={set("lost_after_s")}
        />
        {isTouched && problem && <p class="hint tone-warn">{problem}</p>}
      </div>
    </Dialog>
  );
}
