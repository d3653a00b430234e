import { useState } from "preact/hooks";
import { shortId } from "../model/ids.ts";
import { visible } from "../model/text.ts";
import { Icon } from "./icons.tsx";
import { Text } from "./text.tsx";

const FEEDBACK_MS = 1_500;

/** A shortened id; the full one on hover and, by a click, in the clipboard. */
export function Id({ of, whole = false }: { of: string; whole?: boolean }) {
  return (
    <span class="id">
      <span class="mono" title={visible(of)}>
        <Text>{whole ? of : shortId(of)}</Text>
      </span>
      <CopyButton text={of} what={visible(of)} />
    </span>
  );
}

export function CopyButton({ text, what }: { text: string; what: string }) {
  const [isCopied, setCopied] = useState(false);
  return (
    <button
      type="button"
      class="copy"
      aria-label={isCopied ? "Copied" : `Copy ${what}`}
      title={isCopied ? "Copied" : "Copy"}
      onClick={async (event) => {
        event.preventDefault();
        event.stopPropagation();
        await copy(text);
        setCopied(true);
        setTimeout(() => setCopied(false), FEEDBACK_MS);
      }}
    >
      <Icon name={isCopied ? "check" : "copy"} />
    </button>
  );
}

/** Fallback: browsers allow the clipboard API only over TLS and on localhost. */
async function copy(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "offscreen";
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}
