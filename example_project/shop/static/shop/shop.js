// Fetch the orders again every two seconds, so that one sees the jobs move.
"use strict";
const orders = document.getElementById("orders");
setInterval(async () => {
  if (document.hidden) return;
  try {
    const answer = await fetch(orders.dataset.url);
    if (answer.ok) orders.innerHTML = await answer.text();
  } catch {
    // The server is down for a moment: the next round may find it.
  }
}, 2000);
