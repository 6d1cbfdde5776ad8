"use strict";
// Reads the table that stands beside it (coresim.advise.surface) as the page's reader slides; asks nobody for anything.
(() => {
  const box = document.getElementById("sliders");
  const table = JSON.parse(box.dataset.surface);
  const inputs = Object.fromEntries([...box.querySelectorAll("input")].map((input) => [input.name, input]));
  const said = (name) => box.querySelector(`[data-said="${name}"]`);

  const place = (values, value) => {
    const below = values.filter((found) => found <= value).length - 1;
    const i = Math.max(0, Math.min(values.length - 2, below));
    return [i, Math.max(0, Math.min(1, (value - values[i]) / (values[i + 1] - values[i])))];
  };
  const inverse = (places, rates, i, value) => {
    const share = (value - places[i]) / (places[i + 1] - places[i]);
    return 1 / (1 / rates[i] + share * (1 / rates[i + 1] - 1 / rates[i]));
  };
  const read = (step, cost, cores) => {
    const [i, at] = place(table.steps.map(Math.log), Math.log(step));
    const [j, along] = place(table.costs.map(Math.log), Math.log(cost));
    const [k, up] = place(table.cores, cores);
    const parts = [k, Math.min(k + 1, table.cores.length - 1)].map((c) => {
      const cells = table.share[c];
      const corner = cells[i][j];
      const far = cells[i + 1][j + 1];
      const [side, one, two] = at > along ? [cells[i + 1][j], at, along] : [cells[i][j + 1], along, at];
      return [inverse(table.costs, table.loader[c], j, cost), corner + one * (side - corner) + two * (far - side)];
    });
    const [slow, share] = [0, 1].map((p) => parts[0][p] + up * (parts[1][p] - parts[0][p]));
    const rate = share * Math.min(inverse(table.steps, table.accelerator, i, step), slow);
    const span = (step - table.steps[i]) / (table.steps[i + 1] - table.steps[i]);
    const busy = table.busy[i] + span * (table.busy[i + 1] - table.busy[i]);
    return { idle: Math.max(0, 1 - rate * busy), rate };
  };

  const digits = (value) => Number(value.toPrecision(3)).toString();
  const time = (seconds) =>
    seconds >= 1 ? `${digits(seconds)} s` : seconds >= 1e-3 ? `${digits(seconds * 1e3)} ms` : `${digits(seconds * 1e6)} µs`;
  const ends = (values) => [Math.log(values[0]), Math.log(values[values.length - 1])];
  const turned = (input, values) => {
    const [low, high] = ends(values);
    return Math.exp(low + (high - low) * (Number(input.value) / Number(input.max)));
  };
  const set = (input, values, value) => {
    const [low, high] = ends(values);
    input.value = Math.round((Number(input.max) * (Math.log(value) - low)) / (high - low));
  };
  const most = table.cores[table.cores.length - 1];

  const draw = (step, cost, cores, idle) => {
    const x = (count) => 40 + (440 * (count - table.cores[0])) / Math.max(1, most - table.cores[0]);
    const y = (share) => 10 + 130 * (1 - share);
    const points = [];
    for (let count = table.cores[0]; count <= most; count += 1) points.push(`${x(count)},${y(read(step, cost, count).idle)}`);
    box.querySelector("polyline").setAttribute("points", points.join(" "));
    const dot = box.querySelector("circle");
    dot.setAttribute("cx", x(cores));
    dot.setAttribute("cy", y(idle));
    const line = box.querySelector("line");
    line.setAttribute("y1", y(table.target));
    line.setAttribute("y2", y(table.target));
  };

  const show = () => {
    // The middle of a slider is the report's own number, not one that rounding made of it.
    const near = (value, own) => (Math.abs(Math.log(value / own)) < 1e-2 ? own : value);
    const step = near(turned(inputs.step, table.steps), table.step);
    const cost = near(turned(inputs.cost, table.costs), table.cost);
    const cores = Number(inputs.cores.value);
    const { idle, rate } = read(step, cost, cores);
    let enough = table.cores[0];
    while (enough <= most && read(step, cost, enough).idle > table.target + table.noise) enough += 1;
    const target = `${digits(100 * table.target)} %`;
    said("step").textContent = `${time(step)} (${digits(table.samples / step)} samples/s)`;
    said("cost").textContent = time(cost);
    said("cores").textContent = String(cores);
    said("idle").textContent = `${(100 * idle).toFixed(1)} %`;
    said("rate").textContent = `${digits(rate * table.samples)} samples/s`;
    said("enough").textContent =
      enough <= most ? `${enough} cores per GPU keep it within ${target}` : `more than ${most} cores per GPU, if any, keep it within ${target}`;
    draw(step, cost, cores, idle);
  };
  const reset = () => {
    set(inputs.step, table.steps, table.step);
    set(inputs.cost, table.costs, table.cost);
    inputs.cores.value = table.core;
    show();
  };
  Object.values(inputs).forEach((input) => input.addEventListener("input", show));
  box.querySelector("button").addEventListener("click", reset);
  box.hidden = false;
  reset();
})();
