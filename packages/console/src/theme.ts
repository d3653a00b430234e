import { computed, effect, signal } from "@preact/signals";

export const CHOICES = ["system", "light", "dark"] as const;
export type Choice = (typeof CHOICES)[number];

const KEY = "tenure-theme";
const system = window.matchMedia("(prefers-color-scheme: dark)");
const isSystemDark = signal(system.matches);
system.addEventListener("change", () => {
  isSystemDark.value = system.matches;
});

export const themeChoice = signal<Choice>(stored());

/** The colours in use: the choice of the user, or that of the system. */
export const theme = computed(() => {
  if (themeChoice.value !== "system") return themeChoice.value;
  return isSystemDark.value ? "dark" : "light";
});

export function chooseTheme(choice: Choice): void {
  localStorage.setItem(KEY, choice);
  themeChoice.value = choice;
}

/** Sets `data-theme`, which the style sheet selects its colours by, and follows every change. */
export function applyTheme(): void {
  effect(() => {
    document.documentElement.dataset.theme = theme.value;
  });
}

function stored(): Choice {
  const choice = localStorage.getItem(KEY);
  return CHOICES.find((known) => known === choice) ?? "system";
}
