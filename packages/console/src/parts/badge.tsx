import { visible } from "../model/text.ts";
import type { Condition, Tone } from "../model/tone.ts";
import { ToneMark } from "./icons.tsx";
import { Text } from "./text.tsx";

/** A state as shape, colour and word. */
export function Badge({ tone, word, detail }: Condition) {
  return (
    <span class={`badge tone-${tone}`} title={detail && visible(detail)}>
      <ToneMark tone={tone} />
      <Text>{word}</Text>
    </span>
  );
}

export function Chip({ children, tone }: { children: string; tone?: Tone }) {
  return (
    <span class={tone ? `chip tone-${tone}` : "chip"} title={visible(children)}>
      <Text>{children}</Text>
    </span>
  );
}

/** Labels as `name=value`. Those that do not fit are counted.*/
export function Labels({ of, max = 3 }: { of: Record<string, string | boolean>; max?: number }) {
  const labels = Object.entries(of).map(([name, value]) => `${name}=${value}`);
  if (labels.length === 0) return <span class="quiet none">–</span>;
  return (
    <span class="chips">
      {labels.slice(0, max).map((label) => (
        <Chip key={label}>{label}</Chip>
      ))}
      {labels.length > max && (
        <span class="quiet" title={visible(labels.slice(max).join(", "))}>
          +{labels.length - max}
        </span>
      )}
    </span>
  );
}
