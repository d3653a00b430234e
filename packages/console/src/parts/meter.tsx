/** A share as a bar with its number. */
export function Meter({
  value,
  max,
  label,
  text,
}: {
  value: number;
  max: number;
  label: string;
  text: string;
}) {
  const share = max > 0 ? Math.min(1, value / max) : 0;
  const tone = share >= 0.9 ? "bad" : share >= 0.75 ? "warn" : "plain";
  return (
    <span class="meter" title={`${label}: ${text}`}>
      <svg
        class={`meter-bar meter-${tone}`}
        viewBox="0 0 100 6"
        preserveAspectRatio="none"
        role="img"
        aria-label={`${label}: ${Math.round(share * 100)} %`}
      >
        <rect class="meter-ground" width="100" height="6" />
        <rect class="meter-fill" width={share * 100} height="6" />
      </svg>
      <span class="number">{text}</span>
    </span>
  );
}
