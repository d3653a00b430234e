import { signal } from "@preact/signals";
import { ToneMark } from "./icons.tsx";
import { Text } from "./text.tsx";

interface Toast {
  id: number;
  tone: "good" | "bad";
  text: string;
}

const SHOWN_MS = 6_000;
const toasts = signal<Toast[]>([]);
let lastId = 0;

export function showToast(tone: Toast["tone"], text: string): void {
  const id = ++lastId;
  toasts.value = [...toasts.value.slice(-3), { id, tone, text }];
  setTimeout(() => {
    toasts.value = toasts.value.filter((toast) => toast.id !== id);
  }, SHOWN_MS);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map(({ id, tone, text }) => (
        <div key={id} class={`toast tone-${tone}`}>
          <ToneMark tone={tone} />
          <Text>{text}</Text>
        </div>
      ))}
    </div>
  );
}
