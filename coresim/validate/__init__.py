"""Run the real input pipeline on this machine at declared settings, and compare it with the prediction."""
